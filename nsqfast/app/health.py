"""How an app is, as GET /healthz says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from nsqfast.app.subscription import Subscription
from nsqfast.client.stats import ConsumerStats

OK = "ok"
STARTING = "starting"
STOPPING = "stopping"
NOT_CONNECTED = "not connected"  # a consumer to any nsqd; it goes on trying
FAILED = "failed"  # a consumer has ended, and the others end, too


@dataclass(frozen=True, slots=True)
class Health:
    """A word, and what belongs to it."""

    state: str
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        return self.state == OK

    def encode(self) -> bytes:
        """The body of an answer."""
        return (
            orjson.dumps({"status": self.state, **self.details}, option=orjson.OPT_INDENT_2) + b"\n"
        )


def describe(subscription: Subscription, stats: ConsumerStats) -> dict[str, object]:
    """What /healthz shows of a consumer."""
    connections = stats.connections
    return {
        "topic": subscription.topic,
        "channel": subscription.channel,
        "connected": [name for name, one in connections.items() if one.is_connected],
        "errors": {name: one.error for name, one in connections.items() if not one.is_connected},
        "received": stats.received,
        "finished": stats.finished,
        "requeued": stats.requeued,
        "in_flight": stats.in_flight,
    }
