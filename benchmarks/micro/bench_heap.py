"""Deadlines in a heap: deferred messages. A thousand a call: its microseconds are nanoseconds per message."""

import pytest
from nsqfast._ext.dev.loops import HeapLoop
from pytest_benchmark.fixture import BenchmarkFixture

MESSAGES = 1000
BODY_SIZE = 200


@pytest.mark.parametrize("standing", [2500, 50_000], ids=lambda count: f"standing={count}")
def bench_deferred(benchmark: BenchmarkFixture, standing: int) -> None:
    """The due one is popped, another is pushed with a random deadline."""
    benchmark.extra_info["messages"] = MESSAGES
    loop = HeapLoop(standing, BODY_SIZE)
    # Until no deadline is left that was pushed at the start, in order.
    assert loop.expire(standing) == standing
    assert benchmark(loop.expire, MESSAGES) == MESSAGES
    assert len(loop.drain()) == standing
