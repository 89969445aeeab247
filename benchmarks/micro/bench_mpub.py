"""MPUB, two hundred messages each. A thousand messages a call: its microseconds are nanoseconds per message."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.dev.loops import publish_batch, scan_batch
from pytest_benchmark.fixture import BenchmarkFixture

from support.core import Peer, make_registry

MESSAGES = 1000
PER_BATCH = 200
BATCHES = MESSAGES // PER_BATCH
ROUNDS = 300
BODIES = ((200).to_bytes(4, "big") + b"x" * 200) * PER_BATCH
COMMAND = b"MPUB t\n%s%s%s" % (
    (4 + len(BODIES)).to_bytes(4, "big"),
    PER_BATCH.to_bytes(4, "big"),
    BODIES,
)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    registry = make_registry(tmp_path)
    registry.topics.ensure("t").channel("c")
    yield registry
    registry.topics.delete("t")
    registry.topics.close()


def bench_scan(benchmark: BenchmarkFixture, registry: Registry) -> None:
    """Line, sizes and limits: whether all of the command was received."""
    benchmark.extra_info["messages"] = MESSAGES
    assert benchmark(scan_batch, Peer(registry).session, COMMAND, BATCHES) == MESSAGES
    assert registry.topics.ensure("t").message_count == 0


def bench_publish_many(benchmark: BenchmarkFixture, registry: Registry) -> None:
    """From the scanned buffer into the queue of one channel."""
    benchmark.extra_info["messages"] = MESSAGES
    topic = registry.topics.ensure("t")
    channel = topic.channel("c")
    published = benchmark.pedantic(
        publish_batch,
        args=(topic, BODIES, PER_BATCH, BATCHES),
        setup=channel.empty,
        rounds=ROUNDS,
        warmup_rounds=3,
    )
    assert published == channel.depth == MESSAGES
