"""Messages in: MPUB, PUB one at a time, PUB pipelined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.generators import GO_CONNECTIONS, GO_TOOLS, NSQFAST_BENCH
from server.loads import Publish, publish, publish_go, times
from server.scenario import MEMORY, Row, at_least, cpu_at_most

if TYPE_CHECKING:
    from server.broker import Broker
    from server.duel import Duel, Samples
    from server.loads import Sample

ONE_AT_A_TIME = {
    2: (30_000, (at_least(1), cpu_at_most(0.65))),
    50: (100_000, (at_least(1.15), cpu_at_most(0.75))),
    500: (100_000, ()),
}


def bench_mpub(duel: Duel) -> None:
    """The canonical one: 200 messages of 200 bytes in each command."""
    name = "MPUB 200 × 200 B, 2 connections"
    by_go = Row(name, GO_TOOLS, MEMORY, targets=(at_least(1.5),))
    by_us = Row(name, NSQFAST_BENCH, MEMORY, targets=(at_least(2), cpu_at_most(0.25)))
    load = Publish(count=duel.scale.count(1_000_000, multiple=400))

    def measure(broker: Broker) -> Samples:
        # So short that no broker gets more than the memory queue holds.
        return {
            by_go: publish_go(broker, duel.scale.seconds(0.4)),
            by_us: times(duel.scale.times(3), lambda: publish(broker, load)),
        }

    duel.run(measure, sink_sizes=(load.command_size(), load.size))


@pytest.mark.parametrize("connections", ONE_AT_A_TIME)
def bench_pub_one_at_a_time(duel: Duel, connections: int) -> None:
    """Every connection waits for its OK before it publishes again."""
    count, targets = ONE_AT_A_TIME[connections]
    name = f"PUB one at a time, {connections} connections"
    by_go = Row(name, GO_TOOLS, MEMORY, targets=(at_least(1),))
    by_us = Row(name, NSQFAST_BENCH, MEMORY, targets=targets)
    load = Publish(
        count=duel.scale.count(count, multiple=connections), batch_size=1, connections=connections
    )

    def measure(broker: Broker) -> Samples:
        samples: dict[Row, Sample | None] = {by_us: publish(broker, load)}
        # bench_writer has no PUB; an MPUB of one message comes closest. The sink, which counts by the size of a PUB,
        # would miscount those.
        if connections == GO_CONNECTIONS and not broker.is_endless:
            samples[by_go] = publish_go(broker, duel.scale.seconds(1.0), batch_size=1)
        return samples

    duel.run(measure, sink_sizes=(load.command_size(), load.size))


def bench_pub_pipelined(duel: Duel) -> None:
    """Up to a hundred commands are sent before the first OK has to come back."""
    row = Row(
        "PUB pipelined, 2 connections, 100 in the air",
        NSQFAST_BENCH,
        MEMORY,
        targets=(at_least(8), cpu_at_most(0.08)),
    )
    load = Publish(count=duel.scale.count(1_000_000, multiple=2), batch_size=1, in_air=100)

    def measure(broker: Broker) -> Samples:
        return {row: times(duel.scale.times(3), lambda: publish(broker, load))}

    duel.run(measure, sink_sizes=(load.command_size(), load.size))
