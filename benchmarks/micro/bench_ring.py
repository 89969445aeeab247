"""The queue in memory. A thousand messages a call: its microseconds are nanoseconds per message."""

import pytest
from nsqfast._ext.core.ring import Ring
from nsqfast._ext.dev.loops import pass_through
from pytest_benchmark.fixture import BenchmarkFixture

MESSAGES = 1000
SUM = MESSAGES * (MESSAGES + 1) // 2


@pytest.mark.parametrize("standing", [0, 10_000], ids=lambda count: f"standing={count}")
def bench_push_pop(benchmark: BenchmarkFixture, standing: int) -> None:
    """One in, one out, with so many waiting."""
    benchmark.extra_info["messages"] = MESSAGES
    ring = Ring()
    for number in range(standing):
        ring.put(1 + number % MESSAGES)
    assert benchmark(pass_through, ring, MESSAGES, 1) == SUM
    assert len(ring) == standing


def bench_fill_and_drain(benchmark: BenchmarkFixture) -> None:
    """From empty and back: the ring grows and is freed each time."""
    benchmark.extra_info["messages"] = MESSAGES
    ring = Ring()
    assert benchmark(pass_through, ring, MESSAGES, MESSAGES) == SUM
    assert len(ring) == 0
