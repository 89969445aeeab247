"""The figures behind /stats, as dicts whose keys are in NSQ's order.

Long lists in them are made while they are read, so that an answer can be made a part at a time; each topic, channel and
client appears as it is at its turn.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.core.histogram import BOUNDS_S
from nsqfast._ext.core.latency import summarize
from nsqfast._ext.server.session import Session
from nsqfast.net.http_reply import encode_json
from nsqfast.nsqd.options import VERSION_LINE
from nsqfast.program.logs import escape_controls
from nsqfast.stats.memory import memory_stats
from nsqfast.version import NSQ_VERSION
from nsqfast.wire.gotext import format_duration
from nsqfast.wire.refusals import PUBLISH_REFUSED


@dataclass(frozen=True, slots=True)
class Filter:
    """The request's filter; '' = all."""

    topic: str = ""
    channel: str = ""
    with_clients: bool = True
    with_memory: bool = True


SMALL_COUNT = 64  # clients and channels that are handled in one go
IN_FLIGHT_PER_UNIT = 256  # examined in the time that a client or channel takes
COMMIT_MOST_S = 10.0  # the last bound of a histogram of commits
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
        **_age_stats(topic),
        **_policy_stats(topic),
        **({} if topic.deaths is None else {"has_dead_letters": True}),
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
        **_age_stats(channel),
        **_said("longest_held_ms", channel.held_ns()),
        **_policy_stats(channel),
        **_pause_stats(channel),
        **_dead_stats(channel),
    }


def _taken_counts(channel: Channel) -> dict[str, int]:
    """Keys that nsqd 1.3.0 does not have; included only if they say something."""
    names = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
    counts = zip(names, channel.taken_counts, strict=True)
    return {name: count for name, count in counts if count}


def _age_stats(queue: Topic | Channel) -> dict[str, int]:
    """The same; where no message waits or is in flight there is none."""
    age_ns = queue.age_ns()
    return {"oldest_message_age_ms": age_ns // 1_000_000} if age_ns > 0 else {}


def _policy_stats(queue: Topic | Channel) -> dict[str, Any]:
    """The same; where no policy holds, and none has, there is none."""
    found: dict[str, Any] = {} if queue.policy is None else {"policy": queue.policy.effect()}
    counts = {"dropped_count": queue.dropped_count, "expired_count": queue.expired_count}
    return found | {name: count for name, count in counts.items() if count}


def _pause_stats(channel: Channel) -> dict[str, Any]:
    """Whether its policy pauses it, and how often that began; nothing where it never did."""
    breaker = channel.breaker
    if breaker is None or not breaker.open_count:
        return {}
    return {"paused_by_policy": breaker.is_open, "policy_pause_count": breaker.open_count}


def _dead_stats(channel: Channel) -> dict[str, Any]:
    """How many messages died and where they are, and why that topic takes none; nothing where none died."""
    counts = {reason: count for reason, count in channel.dead_counts.items() if count}
    letters = channel.dead_letters
    if letters is None or not (counts or letters.refusal):
        return {}
    refusal = {} if letters.refusal is None else {"dead_letter_refusal": letters.refusal}
    return {"dead_letter_topic": letters.name, "dead_letter_counts": counts, **refusal}


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


def log_stats(registry: Registry) -> dict[str, Any] | None:
    """The commit log; None: there is none. Its times are counts of commits that took so many ms at most."""
    found = registry.durability.store.log_figures()
    if found is None:
        return None
    times = found["commit_times"]
    *within, count = times.cumulative()
    found["commit_times"] = {
        "count": count,
        "sum_ms": round(times.sum_s * 1e3, 3),
        "within_ms": [
            [bound_s * 1e3, number]
            for bound_s, number in zip(BOUNDS_S, within, strict=True)
            if bound_s <= COMMIT_MOST_S
        ],
    }
    del found["checkpoint_s"]  # of all, which says little beside the last one
    return found | {"refused_count": PUBLISH_REFUSED["commit_log"]}


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


# For programs: the result of `collect` as JSON in pieces.

# Lists that may be long, nested in this order.
NESTED = ("topics", "channels", "clients")


def json_pieces(found: dict[str, Any]) -> Iterator[bytes]:
    """The whole answer."""
    figures = {name: value for name, value in found.items() if name != "producers"}
    last = b""
    for piece in _object(figures, NESTED):
        yield last
        last = piece
    yield last[:-1] + b',"producers":'
    yield from _list(found["producers"], (), empty=b"null")
    yield b"}"


def _object(record: dict[str, Any], nested: tuple[str, ...]) -> Iterator[bytes]:
    """One object; the last piece ends with a brace."""
    name = nested[0] if nested else ""
    if isinstance(record.get(name), list | None):
        yield encode_json(record)
        return
    names = list(record)
    place = names.index(name)
    head = encode_json({name: record[name] for name in names[:place]})
    tail = encode_json({name: record[name] for name in names[place + 1 :]})
    yield b'%b%b"%b":' % (head[:-1], b"," if place else b"", name.encode())
    yield from _list(record[name], nested[1:])
    yield b"," + tail[1:] if len(tail) > 2 else b"}"


def _list(
    items: Iterable[dict[str, Any] | None] | None, nested: tuple[str, ...], empty: bytes = b"[]"
) -> Iterator[bytes]:
    before = b"["
    for item in items or ():
        if item is None:
            yield b""
            continue
        yield before
        yield from _object(item, nested)
        before = b","
    yield empty if before == b"[" else b"]"


def text_pieces(found: dict[str, Any], start_time: float) -> Iterator[str]:
    """For people: what `collect` returns, as lines in nsqd's layout; a piece is one topic, channel or client."""
    now = time.time()
    yield f"{VERSION_LINE}\n"
    yield f"start_time {_format_time(int(start_time))}\n"
    yield f"uptime {format_duration(int((now - start_time) * 1e9))}\n"
    yield f"\nHealth: {found['health']}\n"
    if "drain" in found:
        yield _drain_line(found["drain"])
    if "memory" in found:
        yield "\nMemory:\n"
        yield from [f"   {name:<25}\t{value}\n" for name, value in found["memory"].items()]
    if "commit_log" in found:
        yield "\nCommit log:\n"
        yield from [f"   {name:<25}\t{text}\n" for name, text in _log_texts(found["commit_log"])]
    yield "\nTopics:"
    end = " None\n\n"
    for topic in found["topics"] or ():
        yield from _topic_pieces(topic, now)
        end = "\n"
    yield f"{end}Producers:"
    end = " None\n"
    for client in found["producers"] or ():
        if client is None:
            yield ""
            continue
        yield "\n" + _client_line("   ", client, now)
        end = "\n"
    yield end


def _format_time(time_s: int) -> str:
    """RFC 3339 in local time."""
    shown = datetime.fromtimestamp(time_s).astimezone().isoformat()
    return shown.removesuffix("+00:00") + "Z" if shown.endswith("+00:00") else shown


def _drain_line(drain: dict[str, Any]) -> str:
    end = drain["deadline"]
    deadline = "no deadline" if end is None else f"deadline {_format_time(end)}"
    return f"Draining: since {_format_time(drain['since'])}, {deadline}\n"


def _log_texts(figures: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in figures.items():
        if name == "commit_times":
            yield name, f"{value['count']}, together {value['sum_ms']}ms"
        elif value != "":
            yield name, str(value).lower() if isinstance(value, bool) else value


def _topic_pieces(topic: dict[str, Any], now: float) -> Iterator[str]:
    prefix = "*P " if topic["paused"] else "   "
    yield (
        f"\n{prefix}[{topic['topic_name']:<15}] depth: {topic['depth']:<5} "
        f"be-depth: {topic['backend_depth']:<5} msgs: {topic['message_count']:<8} "
        f"e2e%: {format_latency(topic['e2e_processing_latency'])}\n"
    )
    for channel in topic["channels"]:
        prefix = "   *P " if channel["paused"] else "      "
        yield (
            f"{prefix}[{channel['channel_name']:<25}] depth: {channel['depth']:<5} "
            f"be-depth: {channel['backend_depth']:<5} inflt: {channel['in_flight_count']:<4} "
            f"def: {channel['deferred_count']:<4} re-q: {channel['requeue_count']:<5} "
            f"timeout: {channel['timeout_count']:<5} msgs: {channel['message_count']:<8} "
            f"e2e%: {format_latency(channel['e2e_processing_latency'])}\n"
        )
        for client in channel["clients"] or ():
            yield _client_line("        ", client, now) + "\n"


def _client_line(indent: str, client: dict[str, Any], now: float) -> str:
    port = client["remote_address"].rpartition(":")[2]
    name = escape_controls(f"{client['hostname']}:{port} {client['user_agent']}")
    head = f"{indent}[V2 {name:<21}]"
    connected = format_duration(max(int(now) - client["connect_ts"], 0) * 1_000_000_000)
    if "pub_counts" in client:
        counts = ",".join(f"{entry['topic']}={entry['count']}" for entry in client["pub_counts"])
        return f"{head} msgs: {client['message_count']:<8} topics: {counts} connected: {connected}"
    return (
        f"{head} state: {client['state']} inflt: {client['in_flight_count']:<4} "
        f"rdy: {client['ready_count']:<4} fin: {client['finish_count']:<8} "
        f"re-q: {client['requeue_count']:<8} msgs: {client['message_count']:<8} "
        f"connected: {connected}"
    )


def format_latency(latency: dict[str, Any]) -> str:
    """Comma-separated, each in the unit that keeps it at or below a thousand if there is one."""
    return ", ".join(_with_unit(entry["value"]) for entry in latency["percentiles"] or [])


def _with_unit(value_ns: float) -> str:
    for unit, size_ns in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if value_ns > size_ns:
            return f"{value_ns / size_ns:.1f}{unit}"
    return f"{value_ns:.1f}ns"
