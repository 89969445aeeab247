"""The in-flight table. A thousand messages a call: its microseconds are nanoseconds per message."""

import pytest
from nsqfast._ext.dev.loops import TableLoop
from pytest_benchmark.fixture import BenchmarkFixture

MESSAGES = 1000
BODY_SIZE = 200
# As many as one consumer can have in flight, and as many as 20 of them.
STANDING = pytest.mark.parametrize("standing", [2500, 50_000], ids=lambda n: f"standing={n}")
SCATTERED = pytest.mark.parametrize("scattered", [False, True], ids=["in-order", "scattered"])


@STANDING
@SCATTERED
def bench_find(benchmark: BenchmarkFixture, standing: int, *, scattered: bool) -> None:
    benchmark.extra_info["messages"] = MESSAGES
    loop = TableLoop(standing, BODY_SIZE)
    assert benchmark(loop.find, MESSAGES, scattered) == MESSAGES


@STANDING
@SCATTERED
def bench_find_remove_insert(
    benchmark: BenchmarkFixture, standing: int, *, scattered: bool
) -> None:
    """One is found and removed as by FIN, one with a new id inserted as by a delivery."""
    benchmark.extra_info["messages"] = MESSAGES
    loop = TableLoop(standing, BODY_SIZE)
    assert benchmark(loop.find_remove_insert, MESSAGES, scattered) == MESSAGES
    assert len(loop) == standing
