"""/stats for people: the same figures as lines, byte for byte in nsqd's layout."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from nsqfast.nsqd.options import VERSION_LINE
from nsqfast.program.logs import escape_controls
from nsqfast.wire.gotext import format_duration


def format_stats(found: dict[str, Any], start_time: float, now: float | None = None) -> str:
    """The result of nsqfast.nsqd.stats.collect as text."""
    return "".join(text_pieces(found, start_time, now))


def text_pieces(
    found: dict[str, Any], start_time: float, now: float | None = None
) -> Iterator[str]:
    """The same in pieces: one topic, channel or client at a time."""
    now = time.time() if now is None else now
    yield f"{VERSION_LINE}\n"
    yield f"start_time {_format_time(int(start_time))}\n"
    yield f"uptime {format_duration(int((now - start_time) * 1e9))}\n"
    yield f"\nHealth: {found['health']}\n"
    if "drain" in found:
        yield _drain_line(found["drain"])
    if "memory" in found:
        yield "\nMemory:\n"
        yield from [f"   {name:<25}\t{value}\n" for name, value in found["memory"].items()]
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
