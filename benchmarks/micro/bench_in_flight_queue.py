"""The in-flight queue, by deadline. A thousand messages a call: its microseconds are nanoseconds per message."""

import pytest
from nsqfast._ext.dev.loops import InFlightQueueLoop
from pytest_benchmark.fixture import BenchmarkFixture

MESSAGES = 1000
BODY_SIZE = 200
STEP_NS = 1000  # between two deliveries


# As many as one consumer can have in flight, and as many as 20 of them.
@pytest.mark.parametrize("standing", [2500, 50_000], ids=lambda count: f"standing={count}")
@pytest.mark.parametrize("scattered", [False, True], ids=["in-order", "scattered"])
@pytest.mark.parametrize("is_mixed", [False, True], ids=["one-timeout", "two-timeouts"])
def bench_remove_and_push(
    benchmark: BenchmarkFixture, standing: int, *, scattered: bool, is_mixed: bool
) -> None:
    """One is removed as by FIN, one pushed as by a delivery; of two timeouts the shorter goes through a heap."""
    benchmark.extra_info["messages"] = MESSAGES
    loop = InFlightQueueLoop(standing, BODY_SIZE, is_mixed)
    grown_ns = benchmark(loop.remove_and_push, MESSAGES, scattered)
    if not scattered:
        # Each had waited longest: until it is delivered again, all others were.
        assert grown_ns == MESSAGES * standing * STEP_NS
    assert grown_ns > 0
    found = loop.drain()
    assert found == sorted(found)
    assert len(found) == standing
