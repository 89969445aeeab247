"""What an Admin returns: the answers of nsqd's HTTP API, with types."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson

from nsqfast.errors import ConnectError

T = TypeVar("T")

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """A channel of one nsqd; the counts are of messages, since that nsqd started."""

    name: str
    depth: int  # queued
    backend_depth: int  # of these on disk
    in_flight_count: int
    deferred_count: int
    message_count: int
    requeue_count: int
    timeout_count: int
    consumer_count: int
    is_paused: bool


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic of one nsqd; `depth` is what no channel has yet."""

    name: str
    depth: int
    backend_depth: int
    message_count: int
    message_bytes: int
    is_paused: bool
    channels: dict[str, ChannelStats]


@dataclass(frozen=True, slots=True)
class NsqdStats:
    """One nsqd; `health` is "OK", or says what is wrong."""

    nsqd: str  # its HTTP address
    version: str
    health: str
    start_time: datetime
    topics: dict[str, TopicStats]


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message that waits; `body` is its beginning if `is_truncated`. `where`: memory, disk, in_flight or deferred."""

    id: bytes
    timestamp_ns: int  # Unix time of the publish
    attempts: int
    size: int  # of the whole body
    body: bytes
    is_truncated: bool
    where: str
    due: datetime | None  # when it times out, or is queued


@dataclass(frozen=True, slots=True)
class Peek:
    """The messages of one state in a channel, or topic, of one nsqd."""

    nsqd: str  # its HTTP address
    depth: int  # how many there are in that state
    messages: tuple[PeekedMessage, ...]
    next_offset: int | None  # where to go on; None at the end, and beyond 10,000
    note: str  # why it ended early


def read_answer_of(nsqd: str, answer: bytes, read: Callable[[str, Any], T]) -> T:
    """Read the JSON; ConnectError if it is not what an nsqd answers."""
    try:
        return read(nsqd, orjson.loads(answer))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError):
        raise ConnectError(f"{nsqd}: no answer of an nsqd: {answer[:100]!r}") from None


def read_stats(nsqd: str, found: dict[str, Any]) -> NsqdStats:
    """/stats?format=json; a topic that is not there leaves null."""
    topics = [_read_topic(topic) for topic in found["topics"] or ()]
    return NsqdStats(
        nsqd=nsqd,
        version=_text(found["version"]),
        health=_text(found["health"]),
        start_time=datetime.fromtimestamp(_whole(found["start_time"]), UTC),
        topics={topic.name: topic for topic in topics},
    )


def _read_topic(found: dict[str, Any]) -> TopicStats:
    channels = [_read_channel(channel) for channel in found["channels"] or ()]
    return TopicStats(
        name=_text(found["topic_name"]),
        **_counts(found, "depth", "backend_depth", "message_count", "message_bytes"),
        is_paused=found["paused"] is True,
        channels={channel.name: channel for channel in channels},
    )


def _read_channel(found: dict[str, Any]) -> ChannelStats:
    return ChannelStats(
        name=_text(found["channel_name"]),
        **_counts(found, "depth", "backend_depth", "in_flight_count", "deferred_count"),
        **_counts(found, "message_count", "requeue_count", "timeout_count"),
        consumer_count=_whole(found["client_count"]),
        is_paused=found["paused"] is True,
    )


def read_peek(nsqd: str, found: dict[str, Any]) -> Peek:
    """/channel/peek, /topic/peek."""
    after = found["next_offset"]
    return Peek(
        nsqd=nsqd,
        depth=_whole(found["depth"]),
        messages=tuple([_read_message(message) for message in found["messages"]]),
        next_offset=None if after is None else _whole(after),
        note=_text(found["note"] or ""),
    )


def _read_message(found: dict[str, Any]) -> PeekedMessage:
    body, due_ns = _text(found["body"]), found["due"]
    is_packed = found["encoding"] == "base64"
    return PeekedMessage(
        id=_text(found["id"]).encode("ascii"),
        timestamp_ns=_whole(found["timestamp"]),
        **_counts(found, "attempts", "size"),
        body=base64.b64decode(body, validate=True) if is_packed else body.encode(),
        is_truncated=found["is_truncated"] is True,
        where=_text(found["where"]),
        due=None if due_ns is None else datetime.fromtimestamp(_whole(due_ns) / SECOND_NS, UTC),
    )


def _counts(found: dict[str, Any], *names: str) -> dict[str, int]:
    return {name: _whole(found[name]) for name in names}


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
