"""Messages out: a backlog, publish and consume together, fan-out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.generators import GO_TOOLS, NSQFAST_BENCH
from server.loads import SIZE, Publish, consume, consume_go, exchange, fill, times
from server.scenario import MEMORY, Row, at_least, cpu_at_most

if TYPE_CHECKING:
    from server.broker import Broker
    from server.duel import Duel, Samples

FAN_OUT = 10


def bench_sub_backlog(duel: Duel) -> None:
    """Two consumers with RDY 2500 take a million messages and finish them."""
    name = "SUB + FIN of a backlog"
    by_go = Row(name, GO_TOOLS, MEMORY, targets=(at_least(2),))
    by_us = Row(name, NSQFAST_BENCH, MEMORY, targets=(at_least(8), cpu_at_most(0.1)))
    load = Publish(count=duel.scale.count(1_000_000, multiple=400))
    # So large that it does not end before bench_reader does.
    load_go = Publish(count=duel.scale.count(1_600_000, multiple=400))

    def measure(broker: Broker) -> Samples:
        backlog = fill(broker, load_go)
        slow = consume_go(broker, backlog, SIZE, duel.scale.seconds(0.8))
        fast = times(duel.scale.times(3), lambda: consume(broker, fill(broker, load)))
        return {by_go: slow, by_us: fast}

    duel.run(measure, sink_sizes=(load.command_size(), load.size))


def bench_publish_and_consume(duel: Duel) -> None:
    """Two publishers of MPUBs and two consumers on the same topic at the same time."""
    row = Row(
        "publish and consume together",
        NSQFAST_BENCH,
        MEMORY,
        targets=(at_least(4), cpu_at_most(0.2)),
    )
    load = Publish(count=duel.scale.count(1_000_000, multiple=400))
    repeat = duel.scale.times(2)
    duel.run(lambda broker: {row: times(repeat, lambda: exchange(broker, load))})


def bench_fan_out(duel: Duel) -> None:
    """Each message goes to ten channels; every finished delivery counts."""
    row = Row(
        f"fan-out to {FAN_OUT} channels, all consumed",
        NSQFAST_BENCH,
        MEMORY,
        targets=(at_least(5), cpu_at_most(0.15)),
    )
    load = Publish(count=duel.scale.count(200_000, multiple=400))
    duel.run(lambda broker: {row: exchange(broker, load, channels=FAN_OUT)})
