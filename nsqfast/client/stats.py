"""Counters of producers and consumers."""

from collections.abc import Mapping
from dataclasses import dataclass

from nsqfast._ext.client.consume_connection import ConsumeConnection, MessageQueue
from nsqfast.client.flow import Flow
from nsqfast.client.reconnector import Reconnector


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Counts of publishes since the start (an MPUB is one)."""

    published: int  # answered with OK
    failed: int
    resent: int  # after a broken connection, so these may be there twice
    waiting: int  # for an answer or a connection
    waiting_bytes: int
    connections: dict[str, bool]  # by address: whether it is connected
    errors: dict[str, str]  # by address: why it is not
    connects: int


@dataclass(frozen=True, slots=True)
class ConnectionStats:
    """One address; `error` says why it is not connected."""

    is_connected: bool
    rdy: int
    in_flight: int
    received: int
    error: str


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """Counts of messages since the start."""

    received: int
    finished: int
    requeued: int
    rejected: int
    touched: int
    given_up: int
    dropped: int  # their connection broke before the program took them; nsqd delivers them again
    waiting: int  # received and not taken yet
    in_flight: int
    backoff_level: int
    connects: int
    connections: dict[str, ConnectionStats]


def consumer_stats(
    inbox: MessageQueue,
    flow: Flow,
    reconnectors: Mapping[str, Reconnector],
    given_up: int,
    moved: int,
) -> ConsumerStats:
    """The figures of a consumer that has begun."""
    connections = {
        subscription.address: subscription.connection for subscription in flow.subscriptions
    }
    return ConsumerStats(
        received=inbox.received,
        finished=inbox.finished,
        requeued=inbox.requeued,
        rejected=inbox.rejected + moved,
        touched=inbox.touched,
        given_up=given_up,
        dropped=inbox.dropped,
        waiting=len(inbox),
        in_flight=flow.in_flight(),
        backoff_level=flow.backoff.level,
        connects=sum(reconnector.connects for reconnector in reconnectors.values()),
        connections={
            address: _connection_stats(reconnector, connections.get(address))
            for address, reconnector in reconnectors.items()
        },
    )


def _connection_stats(
    reconnector: Reconnector, connection: ConsumeConnection | None
) -> ConnectionStats:
    """The figures of one address; `connection` is None while it is not connected."""
    if connection is None:
        return ConnectionStats(False, 0, 0, 0, str(reconnector.error or "not connected yet"))
    return ConnectionStats(True, connection.rdy, connection.in_flight, connection.received, "")
