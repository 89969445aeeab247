"""Messages that go to disk: through the page cache, and with an OK that means "on disk"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.duel import DISK_FLAGS
from server.generators import GO_TOOLS, NSQFAST_BENCH
from server.loads import SIZE, Publish, consume, consume_go, fill, publish, publish_go
from server.scenario import FSYNC, PAGE_CACHE, Row, at_least, cpu_at_most

if TYPE_CHECKING:
    from server.broker import Broker
    from server.duel import Duel, Samples

SYNC_FLAGS = (*DISK_FLAGS, "--sync-every=1")
# Go manages some hundred messages a second here, so time ends the round, not a number of messages.
SYNC_COUNT_MAX = 1_000_000
SYNC_SECONDS = 2.0


def bench_disk_only(duel: Duel) -> None:
    """--mem-queue-size=0: every message is written and read back."""
    name_in, name_out = "disk only, in", "disk only, out"
    in_go = Row(name_in, GO_TOOLS, PAGE_CACHE, targets=(at_least(4),))
    in_us = Row(name_in, NSQFAST_BENCH, PAGE_CACHE, targets=(at_least(6), cpu_at_most(0.12)))
    out_go = Row(name_out, GO_TOOLS, PAGE_CACHE, targets=(at_least(3),))
    out_us = Row(name_out, NSQFAST_BENCH, PAGE_CACHE, targets=(at_least(8), cpu_at_most(0.12)))
    load = Publish(count=duel.scale.count(400_000, multiple=400))
    load_go = Publish(count=duel.scale.count(1_200_000, multiple=400))

    def measure(broker: Broker) -> Samples:
        return {
            in_go: publish_go(broker, duel.scale.seconds(0.5)),
            in_us: publish(broker, load),
            out_go: consume_go(broker, fill(broker, load_go), SIZE, duel.scale.seconds(0.7)),
            out_us: consume(broker, fill(broker, load)),
        }

    duel.run(measure, DISK_FLAGS)


def bench_sync_mpub(duel: Duel) -> None:
    """--sync-every=1 and two connections that send MPUBs."""
    _sync(duel, "MPUB 200 × 200 B, 2 connections", 150, batch_size=200)


def bench_sync_pipelined(duel: Duel) -> None:
    """--sync-every=1 and two connections that do not wait for each OK."""
    _sync(duel, "PUB pipelined, 2 connections, 100 in the air", 150, batch_size=1, in_air=100)


def bench_sync_one_at_a_time(duel: Duel) -> None:
    """--sync-every=1 and fifty connections that wait: how well they share an fsync."""
    _sync(duel, "PUB one at a time, 50 connections", 35, batch_size=1, connections=50)


def _sync(duel: Duel, name: str, ratio: float, **how: int) -> None:
    row = Row(f"--sync-every=1, {name}", NSQFAST_BENCH, FSYNC, targets=(at_least(ratio),))
    load = Publish(
        count=duel.scale.count(SYNC_COUNT_MAX, multiple=400),
        seconds=duel.scale.seconds(SYNC_SECONDS),
        **how,
    )
    duel.run(lambda broker: {row: publish(broker, load)}, SYNC_FLAGS)
