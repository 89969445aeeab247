"""A topic and its channels. A thousand publishes a call: its microseconds are nanoseconds per publish,
which covers as many deliveries as there are channels.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.dev.loops import Taker, publish
from pytest_benchmark.fixture import BenchmarkFixture

from support.core import make_registry

MESSAGES = 1000
PER_TURN = 100  # publishes until the consumers finish what they got
BODY = b"x" * 200
CHANNELS = pytest.mark.parametrize("channels", [1, 10, 100], ids=lambda count: f"channels={count}")


@pytest.fixture
def topic(tmp_path: Path, channels: int) -> Iterator[Topic]:
    registry = make_registry(tmp_path)
    topic = registry.topics.ensure("t")
    for number in range(channels):
        topic.channel(f"c{number}")
    yield topic
    registry.topics.delete("t")
    registry.topics.close()


@CHANNELS
def bench_without_consumers(benchmark: BenchmarkFixture, topic: Topic, channels: int) -> None:
    """The queues fill; emptying them is not timed."""
    benchmark.extra_info["messages"] = MESSAGES

    def empty() -> None:
        for channel in topic.channels():
            channel.empty()

    done = benchmark.pedantic(
        publish,
        args=(topic, [], BODY, MESSAGES, PER_TURN),
        setup=empty,
        rounds=20 + 300 // channels,
        warmup_rounds=3,
    )
    assert done == (MESSAGES, 0)
    assert [channel.depth for channel in topic.channels()] == [MESSAGES] * channels


@CHANNELS
def bench_to_ready_consumers(benchmark: BenchmarkFixture, topic: Topic, channels: int) -> None:
    """One on each channel, which finishes all it gets; no bytes are written."""
    benchmark.extra_info["messages"] = MESSAGES
    takers = [Taker(channel, PER_TURN) for channel in topic.channels()]
    done = benchmark.pedantic(
        publish,
        args=(topic, takers, BODY, MESSAGES, PER_TURN),
        rounds=20 + 300 // channels,
        warmup_rounds=3,
    )
    assert done == (MESSAGES, MESSAGES * channels)
    assert len({taker.taken_sum for taker in takers}) == 1
    assert sum(channel.in_flight_count for channel in topic.channels()) == 0
