"""The figures behind /stats, as dicts whose keys are in NSQ's order.

Long lists in them are made while they are read, so that an answer can be made a part at a time; each topic, channel and
client appears as it is at its turn.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.core.latency import summarize
from nsqfast._ext.server.session import Session
from nsqfast.stats.memory import memory_stats
from nsqfast.version import NSQ_VERSION


@dataclass(frozen=True, slots=True)
class Filter:
    """The request's filter; '' = all."""

    topic: str = ""
    channel: str = ""
    with_clients: bool = True
    with_memory: bool = True


SMALL_COUNT = 64  # clients and channels that are handled in one go
IN_FLIGHT_PER_UNIT = 256  # examined in the time that a client or channel takes
SAID_LEAST_MS = 1000  # that a message is held for less says nothing


def collect(registry: Registry, health: str, start_time: float, wanted: Filter) -> dict[str, Any]:
    """The content of /stats."""
    found: dict[str, Any] = {
        "version": NSQ_VERSION,
        "health": health,
        "start_time": int(start_time),
        "topics": _topics(registry, wanted),
    }
    if wanted.with_memory:
        found["memory"] = memory_stats()
    found["producers"] = _producers(registry, wanted) if found["topics"] is not None else None
    return found


def _topics(registry: Registry, wanted: Filter) -> Iterator[dict[str, Any]] | None:
    topic = registry.topics.find(wanted.topic) if wanted.topic else None
    if wanted.topic and topic is None:
        return None
    return _each_topic(registry, topic, wanted)


def _each_topic(registry: Registry, only: Topic | None, wanted: Filter) -> Iterator[dict[str, Any]]:
    quantiles = registry.settings.options.e2e_processing_latency_percentiles
    for topic in registry.topics.sorted() if only is None else [only]:
        channels = topic.channels()
        if wanted.channel:
            channel = topic.find_channel(wanted.channel)
            if channel is None:
                continue
            channels = [channel]
        yield _topic_stats(topic, channels, wanted, quantiles)


def _topic_stats(
    topic: Topic, channels: list[Channel], wanted: Filter, quantiles: list[float]
) -> dict[str, Any]:
    each = (_channel_stats(channel, wanted, quantiles) for channel in channels)
    count = (
        len(channels) + sum([channel.in_flight_count for channel in channels]) // IN_FLIGHT_PER_UNIT
    )
    if wanted.with_clients:
        count += sum([channel.consumer_count for channel in channels])
    return {
        "topic_name": topic.name,
        "channels": list(each) if count <= SMALL_COUNT else each,
        "depth": topic.depth,
        "backend_depth": topic.backend_depth,
        "message_count": topic.message_count,
        "message_bytes": topic.message_bytes,
        "paused": topic.paused,
        "e2e_processing_latency": latency_stats(topic.channels() if quantiles else [], quantiles),
        **_age(topic),
    }


def _channel_stats(channel: Channel, wanted: Filter, quantiles: list[float]) -> dict[str, Any]:
    consumers = channel.consumers()
    clients: Iterable[dict[str, Any]] | None = None
    if wanted.with_clients:
        each = (client_stats(session, wanted.topic) for session in consumers)
        count = len(consumers) + channel.in_flight_count // IN_FLIGHT_PER_UNIT
        clients = list(each) if count <= SMALL_COUNT else each
    return {
        "channel_name": channel.name,
        "depth": channel.depth,
        "backend_depth": channel.backend_depth,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "message_count": channel.message_count,
        **_taken_counts(channel),
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": len(consumers),
        "clients": clients,
        "paused": channel.paused,
        "e2e_processing_latency": latency_stats([channel], quantiles),
        **_age(channel),
        **_said("longest_held_ms", channel.held_ns()),
    }


def _taken_counts(channel: Channel) -> dict[str, int]:
    """Keys that nsqd 1.3.0 does not have; included only if they say something."""
    names = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
    counts = zip(names, channel.taken_counts, strict=True)
    return {name: count for name, count in counts if count}


def _age(queue: Topic | Channel) -> dict[str, int]:
    """The same; where no message waits or is in flight there is none."""
    age_ns = queue.age_ns()
    return {"oldest_message_age_ms": age_ns // 1_000_000} if age_ns > 0 else {}


def _said(name: str, time_ns: int) -> dict[str, int]:
    time_ms = time_ns // 1_000_000
    return {name: time_ms} if time_ms >= SAID_LEAST_MS else {}


def latency_stats(channels: list[Channel], quantiles: list[float]) -> dict[str, Any]:
    """Times from publishing to FIN over all these channels; nothing without a configured percentile."""
    if not quantiles:
        return {"count": 0, "percentiles": None}
    measured = [channel.latency for channel in channels if channel.latency is not None]
    count, values = summarize(measured, quantiles)
    return {
        "count": count,
        "percentiles": [
            {"quantile": quantile, "value": value}
            for quantile, value in zip(quantiles, values, strict=True)
        ],
    }


def _producers(registry: Registry, wanted: Filter) -> Iterator[dict[str, Any] | None] | None:
    return _each_producer(registry, wanted) if wanted.with_clients else None


def _each_producer(registry: Registry, wanted: Filter) -> Iterator[dict[str, Any] | None]:
    """Yields None now and then, if many connections publish nothing: a part of a turn may end there."""
    for number, connection in enumerate(registry.turn.clients()):
        session: Session | None = connection.session
        if session is not None and session.pub_counts():
            yield client_stats(session, wanted.topic)
        elif number % SMALL_COUNT == 0:
            yield None


def client_stats(session: Session, topic: str) -> dict[str, Any]:
    """One connection; with a topic filter, its publish count is that of this topic, otherwise of one of its topics."""
    connection = session.client
    found: dict[str, Any] = {
        "client_id": session.client_id,
        "hostname": session.hostname,
        "version": "V2",
        "remote_address": connection.remote_address,
        "state": session.state,
        "ready_count": session.rdy,
        "in_flight_count": session.in_flight,
        "message_count": session.message_count,
        "finish_count": session.finish_count,
        "requeue_count": session.requeue_count,
        "connect_ts": connection.connect_ts,
        "sample_rate": session.sample_percent,
        "deflate": bool(session.deflate),
        "snappy": bool(session.snappy),
        "user_agent": session.user_agent,
    }
    if session.grant is not None:
        found |= _auth_stats(session.grant)
    found["topology_zone"] = session.topology_zone
    found["topology_region"] = session.topology_region
    counts = _pub_counts(session, topic)
    if counts:
        found["pub_counts"] = counts
    secure = connection.secure if connection.tls else None
    return found | {
        "tls": secure is not None,
        "tls_cipher_suite": secure.cipher_suite if secure else "",
        "tls_version": secure.version if secure else "",
        "tls_negotiated_protocol": "",
        # As in Go, this also says that TLS is on, because no protocol is negotiated.
        "tls_negotiated_protocol_is_mutual": secure is not None,
        **_in_flight_stats(session),
    }


def _in_flight_stats(session: Session) -> dict[str, int]:
    """Keys that nsqd 1.3.0 does not have; included only if they say something."""
    found = _said("oldest_in_flight_ms", session.oldest_in_flight_ns())
    found |= _said("held_ms", session.held_ns())
    if session.timeout_count:
        found["timeout_count"] = session.timeout_count
    return found


def _auth_stats(grant: Any) -> dict[str, Any]:
    """Empty values are left out, as NSQ's JSON does where it says omitempty."""
    figures = {
        "authed": bool(grant.authorizations),
        "auth_identity": grant.identity,
        "auth_identity_url": grant.identity_url,
    }
    return {name: value for name, value in figures.items() if value}


def _pub_counts(session: Session, topic: str) -> list[dict[str, Any]]:
    """At most one entry, as in NSQ; without a filter that of the busiest topic."""
    counts = session.pub_counts()
    name = topic or max(counts, key=lambda name: counts[name], default="")
    return [{"topic": name, "count": counts[name]}] if name in counts else []
