"""Message ids. A thousand a call: its microseconds are nanoseconds per id."""

from nsqfast._ext.core.guid import GuidFactory
from nsqfast._ext.dev.loops import make_ids, stamp
from pytest_benchmark.fixture import BenchmarkFixture

MESSAGES = 1000
NOW_NS = 1_750_000_000_000_000_000


def bench_ids(benchmark: BenchmarkFixture) -> None:
    """One every microsecond, from a clock that costs nothing."""
    benchmark.extra_info["messages"] = MESSAGES
    factory = GuidFactory(0)
    expected = sum(factory.make(NOW_NS + 1000 * n) for n in range(MESSAGES)) % (1 << 64)
    assert benchmark(make_ids, MESSAGES, NOW_NS, 1000) == expected


def bench_ids_and_clocks(benchmark: BenchmarkFixture) -> None:
    """With both clock readings of a PUB."""
    benchmark.extra_info["messages"] = MESSAGES
    assert benchmark(stamp, MESSAGES) == MESSAGES
