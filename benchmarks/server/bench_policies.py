"""What policies cost the messages that they hold for. Go's nsqd has none: its columns stay empty there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.generators import NSQFAST_BENCH
from server.implementation import GO
from server.loads import Publish, consume, fill, publish, times
from server.scenario import MEMORY, Row

if TYPE_CHECKING:
    from server.broker import Broker
    from server.duel import Duel, Samples

RETRY_MS = 100
# Without jitter both wait for the same time.
RETRY = {"max_failures": 5, "retry_min": f"{RETRY_MS}ms", "retry_jitter": 0}
LIMITS = {"max_messages": 1_000_000_000, "max_bytes": "1TB", "max_age": "24h"}


def bench_req(duel: Duel) -> None:
    """The consumer asks for the delay, or leaves that to the policy, which counts failures, too."""
    asked = Row(f"REQ {RETRY_MS} ms of each, as the consumer asks", NSQFAST_BENCH, MEMORY)
    left = Row(f"REQ 0 of each, {RETRY_MS} ms and failures by policy", NSQFAST_BENCH, MEMORY)
    load = Publish(count=duel.scale.count(200_000, multiple=400))

    def measure(broker: Broker) -> Samples:
        def requeue(delay_ms: int) -> dict[str, float]:
            return consume(broker, fill(broker, load), requeue_ms=delay_ms)

        plain = requeue(RETRY_MS)
        if broker.name == GO:
            return {asked: plain, left: None}
        with broker.policy(RETRY):
            return {asked: plain, left: requeue(0)}

    duel.run(measure)


def bench_mpub(duel: Duel) -> None:
    """Limits that are never reached."""
    free = Row("MPUB 200 × 200 B without a policy", NSQFAST_BENCH, MEMORY)
    limited = Row("MPUB 200 × 200 B with max_age, max_bytes, max_messages", NSQFAST_BENCH, MEMORY)
    load = Publish(count=duel.scale.count(1_000_000, multiple=400))

    def measure(broker: Broker) -> Samples:
        def put() -> dict[str, float]:
            return times(duel.scale.times(3), lambda: publish(broker, load))

        plain = put()
        if broker.name == GO:
            return {free: plain, limited: None}
        with broker.policy(LIMITS):
            return {free: plain, limited: put()}

    duel.run(measure)
