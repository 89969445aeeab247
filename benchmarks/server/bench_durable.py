"""Messages whose OK means "on disk": beside Go's nsqd in the same mode, beside Redis, and the disk alone.

Go's nsqd manages some hundred messages a second here, so time ends a round, not a number of messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server import device, redis
from server.duel import DISK_FLAGS, MEMORY_FLAGS
from server.generators import NSQFAST_BENCH, WRK, WRK_CONNECTIONS
from server.implementation import GO
from server.loads import (
    Publish,
    keep_up,
    lag,
    latency,
    publish,
    publish_http,
    publish_to_topics,
)
from server.scenario import (
    DEVICE,
    DURABLE,
    DURABLE_LATENCY,
    FSYNC,
    NOTHING,
    PAGE_CACHE,
    Row,
    at_least,
)

if TYPE_CHECKING:
    from pathlib import Path

    from server.broker import Broker
    from server.duel import Duel, Samples
    from server.redis import Redis

SYNC_FLAGS = (*DISK_FLAGS, "--sync-every=1")
COUNT_MAX = 2_000_000
SECONDS = 2.0
# Go's moves a message to ten channels by ten fsyncs, behind its OK, and the round waits for that.
CHANNEL_SECONDS = {1: 1.0, 10: 0.4}
MPUB = "MPUB 200 × 200 B, 2 connections"
PIPELINED = "PUB pipelined, 2 connections, 100 in the air"
TOPICS = 100
RATES = (5_000, 50_000)  # per second
LATENCY_SECONDS = 2.0
# As long as a round of the brokers, about.
REDIS_COUNTS = {MPUB: 400_000, PIPELINED: 300_000}
COMMITS = 300
BLOCKS = {"4 KiB": 4 << 10, "64 KiB": 64 << 10}


def _load(duel: Duel, seconds: float, **how: int) -> Publish:
    return Publish(
        duel.scale.count(COUNT_MAX, multiple=400), seconds=duel.scale.seconds(seconds), **how
    )


def bench_sync_mpub(duel: Duel) -> None:
    """Two connections that send MPUBs."""
    _sync(duel, MPUB, 150, REDIS_COUNTS[MPUB], batch_size=200)


def bench_sync_pipelined(duel: Duel) -> None:
    """Two connections that do not wait for each OK."""
    _sync(duel, PIPELINED, 150, REDIS_COUNTS[PIPELINED], batch_size=1, in_air=100)


def bench_sync_one_at_a_time(duel: Duel) -> None:
    """Fifty connections that wait: how well they share an fsync."""
    _sync(duel, "PUB one at a time, 50 connections", 35, 100_000, batch_size=1, connections=50)


def _sync(duel: Duel, name: str, ratio: float, redis_count: int, **how: int) -> None:
    row = Row(
        f"--sync-every=1, {name}",
        NSQFAST_BENCH,
        FSYNC,
        targets=(at_least(ratio),),
        redis_generator=redis.BENCHMARK,
    )
    load = _load(duel, SECONDS, **how)
    count = duel.scale.count(redis_count)
    duel.run(
        lambda broker: {row: publish(broker, load)},
        SYNC_FLAGS,
        redis=lambda server: {row: redis.publish(server, load, count)},
    )


@pytest.mark.parametrize("mode", ["off", "interval"])
@pytest.mark.parametrize("name", [MPUB, PIPELINED])
def bench_interval(duel: Duel, name: str, mode: str) -> None:
    """What a kill -9 may take or not, and the disk has a little later; nobody consumes, beside Go's defaults."""
    row = Row(f"--durable={mode}, {name}", NSQFAST_BENCH, PAGE_CACHE, DURABLE)
    how = {"batch_size": 200} if name == MPUB else {"batch_size": 1, "in_air": 100}
    load = _load(duel, SECONDS, **how)
    duel.run(
        lambda broker: {row: publish(broker, load)},
        (f"--durable={mode}",),
        go_flags=("--mem-queue-size=10000",),
    )


def bench_channels_without_consumers(duel: Duel) -> None:
    """Ten channels; with one channel it is the MPUB above."""
    row = Row(f"{MPUB}, 10 channels, nobody consumes", NSQFAST_BENCH, FSYNC, DURABLE)
    load = _load(duel, CHANNEL_SECONDS[10])
    duel.run(lambda broker: {row: publish(broker, load, channels=10)}, SYNC_FLAGS)


@pytest.mark.parametrize("channels", CHANNEL_SECONDS)
def bench_consumers_lag(duel: Duel, channels: int) -> None:
    """One consumer that waits for each message takes far less than the rate, and the other channels have none."""
    row = Row(f"{MPUB}, {_channels(channels)}, one slow consumer", NSQFAST_BENCH, FSYNC, DURABLE)
    load = _load(duel, CHANNEL_SECONDS[channels])

    def measure(broker: Broker) -> Samples:
        # Its few messages a second leave no consumer behind.
        return {row: None if broker.name == GO else lag(broker, load, channels)}

    duel.run(measure, SYNC_FLAGS)


@pytest.mark.parametrize("channels", CHANNEL_SECONDS)
def bench_consumers_keep_up(duel: Duel, channels: int) -> None:
    """Messages a second that all channels have finished, whatever the number of channels."""
    _exchange(duel, MPUB, channels)


def bench_pipelined_with_consumers(duel: Duel) -> None:
    """The same with single messages."""
    _exchange(duel, PIPELINED, channels=1, batch_size=1, in_air=100)


def _exchange(duel: Duel, name: str, channels: int, **how: int) -> None:
    has_redis = channels == 1
    row = Row(
        f"{name}, {_channels(channels)}, consumed",
        NSQFAST_BENCH,
        FSYNC,
        DURABLE,
        redis_generator=redis.WITH_READERS if has_redis else "",
    )
    load = _load(duel, CHANNEL_SECONDS[channels], **how)
    count = duel.scale.count(REDIS_COUNTS[name] // 2)

    def measure_redis(server: Redis) -> Samples:
        return {row: redis.exchange(server, load, count)}

    duel.run(
        lambda broker: {row: keep_up(broker, load, channels)},
        SYNC_FLAGS,
        redis=measure_redis if has_redis else None,
    )


def _channels(count: int) -> str:
    return "1 channel" if count == 1 else f"{count} channels"


def bench_topics(duel: Duel) -> None:
    """The same connections on one topic, and each on a topic of its own."""
    topics = duel.scale.count(TOPICS)
    how = {"batch_size": 1, "in_air": 10, "connections": topics}
    rows = {
        count: Row(
            f"PUB pipelined, {topics} connections, 10 in the air, {name}",
            NSQFAST_BENCH,
            FSYNC,
            DURABLE,
        )
        for count, name in ((1, "1 topic"), (topics, f"{topics} topics"))
    }
    loads = {count: _load(duel, 1.0, topics=count, **how) for count in rows}
    duel.run(
        lambda broker: {row: publish_to_topics(broker, loads[n]) for n, row in rows.items()},
        SYNC_FLAGS,
    )


@pytest.mark.usefixtures("needs_wrk")
@pytest.mark.parametrize("mode", ["durable", "memory"])
def bench_http(duel: Duel, mode: str) -> None:
    """Go's in the same mode, and from memory: what those compare who ask whether they can afford an fsync."""
    name = f"HTTP /pub, {WRK_CONNECTIONS} keep-alive connections"
    other = "" if mode == "durable" else "; Go nsqd in memory"
    row = Row(name + other, WRK, FSYNC, DURABLE)
    seconds = duel.scale.seconds(1.0)
    duel.run(
        lambda broker: {row: publish_http(broker, "pub", 1, seconds)},
        SYNC_FLAGS,
        go_flags=SYNC_FLAGS if mode == "durable" else MEMORY_FLAGS,
    )


@pytest.mark.parametrize("rate", RATES)
def bench_latency(duel: Duel, rate: int) -> None:
    """Until the OK and until a consumer has the message; Go's takes neither rate in this mode."""
    until_ok, until_received = (
        Row(f"{rate:,} msg/s, PUB until {end}", NSQFAST_BENCH, FSYNC, DURABLE_LATENCY)
        for end in ("OK", "received")
    )
    seconds = duel.scale.seconds(LATENCY_SECONDS)

    def measure(broker: Broker) -> Samples:
        if broker.name == GO:
            return {until_ok: None, until_received: None}
        sample = latency(broker, rate, seconds, timeout_ms=1)
        names = ("p50_us", "p99_us", "p999_us")
        return {
            until_ok: {name: sample[f"ok_{name}"] for name in names},
            until_received: {name: sample[name] for name in names},
        }

    duel.run(measure, (*SYNC_FLAGS, "--min-output-buffer-timeout=1ms"))


def bench_device(duel: Duel) -> None:
    """One commit at a time, without a broker."""
    count = duel.scale.count(COMMITS)
    ways = {
        "append + fdatasync": device.append,
        "overwrite, O_DIRECT and O_DSYNC": device.overwrite,
    }

    def measure(folder: Path) -> Samples:
        samples = {}
        for way, commit in ways.items():
            for name, size in BLOCKS.items():
                sample = commit(folder, size, count)
                refused = "" if sample else " (refused by this file system)"
                samples[Row(f"{way}, {name}{refused}", "none", NOTHING, DEVICE)] = sample
        return samples

    duel.run_device(measure)
