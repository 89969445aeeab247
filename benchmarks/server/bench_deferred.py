"""Deferred messages: DPUB, and REQ of delivered ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.generators import NSQFAST_BENCH
from server.loads import Publish, consume, exchange, fill, publish
from server.scenario import MEMORY, Row

if TYPE_CHECKING:
    from server.broker import Broker
    from server.duel import Duel, Samples

HOUR_MS = 3_600_000
SOON_MS = 100
REQUEUE_MS = 100


def bench_dpub(duel: Duel) -> None:
    """Deferred by an hour, longer than the benchmark; and by a tenth of a second, with consumers waiting."""
    late = Row("DPUB, pipelined, due in an hour", NSQFAST_BENCH, MEMORY)
    soon = Row(f"DPUB, pipelined, due in {SOON_MS} ms, and consumed", NSQFAST_BENCH, MEMORY)
    count = duel.scale.count(200_000, multiple=2)

    def load(defer_ms: int) -> Publish:
        return Publish(count, batch_size=1, in_air=100, defer_ms=defer_ms)

    def measure(broker: Broker) -> Samples:
        return {late: publish(broker, load(HOUR_MS)), soon: exchange(broker, load(SOON_MS))}

    duel.run(measure)


def bench_req(duel: Duel) -> None:
    """Every message is requeued once and finished when it comes again."""
    at_once, later = (
        Row(f"REQ {ms} ms once for each of a backlog, then FIN", NSQFAST_BENCH, MEMORY)
        for ms in (0, REQUEUE_MS)
    )
    load = Publish(count=duel.scale.count(200_000, multiple=400))

    def measure(broker: Broker) -> Samples:
        return {
            at_once: consume(broker, fill(broker, load), requeue_ms=0),
            later: consume(broker, fill(broker, load), requeue_ms=REQUEUE_MS),
        }

    duel.run(measure)
