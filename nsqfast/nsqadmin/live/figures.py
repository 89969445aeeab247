"""What the poller reads of an nsqd's /stats: numbers alone, decoded without clients and percentiles.

A channel's figures are its Counts at the same time, so nothing is copied. Anything that nsqd cannot have meant (a count
beyond 64 bits, text for a number) raises msgspec.DecodeError.
"""

import itertools
from collections.abc import Iterator
from typing import Annotated

import msgspec

from nsqfast.nsqadmin.live.model import Counts

Count = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

PIECE_SIZE_MAX = 512 << 10  # decoded in a millisecond or two
TOPIC_BEGIN = b'{"topic_name":'


class _Figures(Counts, gc=False, kw_only=True):
    """Counts again, with the limits of what is read from the wire."""

    depth: Count = 0
    backend_depth: Count = 0
    message_count: Count = 0
    in_flight_count: Count = 0
    deferred_count: Count = 0
    requeue_count: Count = 0
    timeout_count: Count = 0
    client_count: Count = 0
    paused: bool = False


class ChannelFigures(_Figures, gc=False, kw_only=True):
    """A channel of a topic on one nsqd."""

    channel_name: str


class TopicFigures(_Figures, gc=False, kw_only=True):
    """A topic on one nsqd; `message_bytes` is None where nsqd is older than 1.0.0."""

    topic_name: str
    message_bytes: Count | None = None
    channels: tuple[ChannelFigures, ...] | None = None


class MemoryFigures(msgspec.Struct, gc=False):
    """Only answered when it is asked for."""

    heap_in_use_bytes: Count = 0


class NodeFigures(msgspec.Struct, gc=False):
    """/stats?format=json"""

    version: str | None = None
    health: str = ""
    start_time: Count = 0
    topics: tuple[TopicFigures, ...] | None = None
    memory: MemoryFigures | None = None


_node = msgspec.json.Decoder(NodeFigures)
_topics = msgspec.json.Decoder(tuple[TopicFigures, ...])


def decode(body: bytes) -> Iterator[NodeFigures | tuple[TopicFigures, ...]]:
    """The topics of a large answer in pieces, then what is left of it, whose `topics` are the last piece.

    Each piece takes a few milliseconds at most; between them the caller may let others run.
    """
    ends = list(_piece_begins(body)) if len(body) > PIECE_SIZE_MAX else []
    if len(ends) < 2:
        yield _node.decode(body)
        return
    for begin, end in itertools.pairwise(ends):
        piece = body[begin:end].rstrip()
        yield _topics.decode(b"[" + piece.removesuffix(b",") + b"]")
    yield _node.decode(body[: ends[0]] + body[ends[-1] :])


def _piece_begins(body: bytes) -> Iterator[int]:
    """Where pieces of whole topics begin. A quote within a JSON string is escaped, so no name can look like one."""
    found = body.find(TOPIC_BEGIN)
    while found >= 0:
        yield found
        found = body.find(TOPIC_BEGIN, found + PIECE_SIZE_MAX)
