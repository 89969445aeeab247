"""The part of an nsqd's /stats that the poller reads: only numbers, decoded without clients and percentiles, then put
into arrays.

The fields are in nsqd's order, which decodes fastest.

Impossible values (a count beyond 53 bits, text for a number) raise msgspec.DecodeError.
"""

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from nsqfast.nsqadmin.live.parts import PAUSED, VALUES, Counts, Ints

COUNT_MAX = 1 << 53  # sums over a thousand nodes fit into 64 bits
Count = Annotated[int, msgspec.Meta(ge=-COUNT_MAX, le=COUNT_MAX)]

PIECE_SIZE_MAX = 256 << 10  # decoded in a millisecond
TOPIC_BEGIN = b'{"topic_name":'
NO_SIZE = -1


class ChannelFigures(msgspec.Struct, gc=False, kw_only=True):
    """A channel of a topic on one nsqd."""

    channel_name: str
    depth: int = 0
    backend_depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    message_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    client_count: int = 0
    paused: bool = False
    oldest_message_age_ms: int = 0  # this one and the next only from ours
    longest_held_ms: int = 0


class TopicFigures(msgspec.Struct, gc=False, kw_only=True):
    """A topic on one nsqd; `message_bytes` is NO_SIZE if nsqd is older than 1.0.0."""

    topic_name: str
    channels: tuple[ChannelFigures, ...] | None = None
    depth: int = 0
    backend_depth: int = 0
    message_count: int = 0
    message_bytes: int = NO_SIZE
    paused: bool = False


class MemoryFigures(msgspec.Struct, gc=False):
    """Present only on request."""

    heap_in_use_bytes: Count = 0
    heap_idle_bytes: Count = 0
    heap_released_bytes: Count = 0

    @property
    def held_bytes(self) -> int:
        """What it has of the system: of ours the resident memory, of Go's nsqd its heap."""
        return self.heap_in_use_bytes + self.heap_idle_bytes - self.heap_released_bytes


class DrainFigures(msgspec.Struct, gc=False):
    """Present only in a drain."""

    since: Count = 0
    deadline: Count | None = None  # both are Unix time
    messages: Count = 0  # still to be delivered
    held: Count = 0  # those of them that nobody gets: paused, or without consumers


class UncleanStartFigures(msgspec.Struct, gc=False):
    """Present until an operator has acknowledged it."""

    messages: Count | None = None  # at most so many are lost; None: not known


class NodeFigures(msgspec.Struct, gc=False):
    """/stats?format=json"""

    version: str | None = None
    health: str = ""
    start_time: Count = 0
    topics: tuple[TopicFigures, ...] | None = None
    memory: MemoryFigures | None = None
    drain: DrainFigures | None = None
    unclean_start: UncleanStartFigures | None = None


_node = msgspec.json.Decoder(NodeFigures)
_topics = msgspec.json.Decoder(tuple[TopicFigures, ...])


def decode(body: bytes | bytearray) -> Iterator[NodeFigures | tuple[TopicFigures, ...]]:
    """Yield the topics of a large answer in pieces, then the rest, whose `topics` are the last piece.

    Each piece takes a few milliseconds at most; in between the caller may let others run.
    """
    ends = list(_piece_begins(body)) if len(body) > PIECE_SIZE_MAX else []
    if len(ends) < 2:
        yield _node.decode(body)
        return
    for begin, end in itertools.pairwise(ends):
        piece = body[begin:end].rstrip()
        yield _topics.decode(b"[" + piece.removesuffix(b",") + b"]")
    yield _node.decode(body[: ends[0]] + body[ends[-1] :])


def _piece_begins(body: bytes | bytearray) -> Iterator[int]:
    """Where pieces of whole topics begin. Quotes within a JSON string are escaped, so no name can look like one."""
    found = body.find(TOPIC_BEGIN)
    while found >= 0:
        yield found
        found = body.find(TOPIC_BEGIN, found + PIECE_SIZE_MAX)


def read(body: bytes | bytearray) -> Iterator[tuple[NodeFigures | None, "Figures"]]:
    """Yield the answer in pieces, each with its arrays; the last one also has the node's own figures."""
    pieces = decode(body)
    while (found := _read_piece(pieces)) is not None:
        yield found


def _read_piece(
    pieces: Iterator[NodeFigures | tuple[TopicFigures, ...]],
) -> tuple[NodeFigures | None, "Figures"] | None:
    # A thousand tuples are created and freed at the end; the garbage collector need not examine them meanwhile.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        piece = next(pieces, None)
        if piece is None:
            return None
        if not isinstance(piece, NodeFigures):
            return None, read_figures(piece)
        topics, piece.topics = piece.topics, None
        return piece, read_figures(topics or ())
    finally:
        if is_collecting:
            gc.enable()


class Figures(NamedTuple):
    """Some topics of a node, and their channels one topic after another."""

    topics: list[str]
    channel_counts: list[int]  # of each topic
    channels: list[str]
    topic_values: Ints  # [topics, VALUES]
    channel_values: Ints  # [channels, VALUES]
    sizes: Ints  # message_bytes of each topic


_channel_numbers = attrgetter(
    *Counts.__struct_fields__, "paused", "oldest_message_age_ms", "longest_held_ms"
)
_topic_numbers = attrgetter("depth", "backend_depth", "message_count", "paused", "message_bytes")
_TOPIC_COLUMNS = [
    *(Counts.__struct_fields__.index(n) for n in ("depth", "backend_depth", "message_count")),
    PAUSED,
]


def read_figures(topics: Sequence[TopicFigures]) -> Figures:
    """In arrays."""
    lists = [topic.channels or () for topic in topics]
    channels = list(itertools.chain.from_iterable(lists))
    numbers = _read_rows(_topic_numbers, topics, len(_TOPIC_COLUMNS) + 1)
    topic_values = np.zeros((len(topics), VALUES), np.int64)
    topic_values[:, _TOPIC_COLUMNS] = numbers[:, :-1]
    return Figures(
        [topic.topic_name for topic in topics],
        list(map(len, lists)),
        [channel.channel_name for channel in channels],
        topic_values,
        _read_rows(_channel_numbers, channels, VALUES),
        numbers[:, -1],
    )


def _read_rows(numbers: Callable[[Any], tuple[int, ...]], rows: Sequence[Any], width: int) -> Ints:
    flat = itertools.chain.from_iterable(map(numbers, rows))
    try:
        found = np.fromiter(flat, np.int64, count=len(rows) * width)
    except OverflowError:
        raise msgspec.DecodeError("one of its numbers is beyond 64 bits") from None
    if len(found) and (found.max() > COUNT_MAX or found.min() < -COUNT_MAX):
        raise msgspec.DecodeError("one of its numbers is beyond 53 bits")
    return found.reshape(len(rows), width)


def join_figures(pieces: Sequence[Figures]) -> Figures:
    """Join them one after another."""
    if len(pieces) == 1:
        return pieces[0]
    chain = itertools.chain.from_iterable
    return Figures(
        list(chain(piece.topics for piece in pieces)),
        list(chain(piece.channel_counts for piece in pieces)),
        list(chain(piece.channels for piece in pieces)),
        np.concatenate([piece.topic_values for piece in pieces]),
        np.concatenate([piece.channel_values for piece in pieces]),
        np.concatenate([piece.sizes for piece in pieces]),
    )
