"""Messages that go to disk, through the page cache; bench_durable.py has those whose OK means "on disk"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.duel import DISK_FLAGS
from server.generators import GO_TOOLS, NSQFAST_BENCH
from server.loads import SIZE, Publish, consume, consume_go, fill, publish, publish_go
from server.scenario import PAGE_CACHE, Row, at_least, cpu_at_most

if TYPE_CHECKING:
    from server.broker import Broker
    from server.duel import Duel, Samples


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
