"""The last answer of one nsqd to /stats: decoded without clients and percentiles, then put into arrays with a row for
each topic and channel; and its rates, from two of its own answers. What left a channel, out/s, is the growth of its
message_count minus that of depth, in-flight and deferred.

Emptying removes messages that were never delivered, and nsqd does not count them. So the rates of a channel are unknown
over the time of a known empty, and whenever messages left although no consumer was there before or after.

Impossible values (a count beyond 53 bits, text for a number) raise msgspec.DecodeError.
"""

import gc
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.answers import COUNT_MAX, NodeFigures, TopicFigures, split_stats
from nsqfast.nsqadmin.cluster.model import (
    BACKEND,
    CLIENTS,
    COUNTS,
    DEFERRED,
    DEPTH,
    IN,
    IN_FLIGHT,
    LETTERS,
    MESSAGES,
    OUT,
    PAUSED,
    RATES,
    REQUEUES,
    TIMEOUTS,
    VALUES,
    Counts,
    Doubles,
    Ints,
    Rates,
)

_node = msgspec.json.Decoder(NodeFigures)
_topics = msgspec.json.Decoder(tuple[TopicFigures, ...])


def read(body: bytes | bytearray) -> Iterator[tuple[NodeFigures | None, "Figures"]]:
    """Yield the answer in pieces, each with its arrays; the last one also has the node's own figures."""
    # A thousand tuples are created and freed with each piece; the garbage collector need not examine them meanwhile.
    for piece, is_rest in split_stats(body):
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            figures = _node.decode(piece) if is_rest else NodeFigures(topics=_topics.decode(piece))
            topics, figures.topics = figures.topics, None
            found = figures if is_rest else None, read_figures(topics or ())
            del topics
        finally:
            if is_collecting:
                gc.enable()
        yield found


class Figures(NamedTuple):
    """Some topics of a node, and their channels one topic after another."""

    topics: list[str]
    channel_counts: list[int]  # of each topic
    channels: list[str]
    topic_values: Ints  # [topics, VALUES]
    channel_values: Ints  # [channels, VALUES]
    sizes: Ints  # message_bytes of each topic


_channel_numbers = attrgetter(
    *Counts.__struct_fields__,
    *("paused", "oldest_message_age_ms", "longest_held_ms", "paused_by_policy", "is_refusing"),
)
_CHANNEL_COLUMNS = LETTERS  # all before it
_topic_numbers = attrgetter(
    *("depth", "backend_depth", "message_count", "paused", "has_dead_letters", "message_bytes")
)
_TOPIC_COLUMNS = [DEPTH, BACKEND, MESSAGES, PAUSED, LETTERS]


def read_figures(topics: Sequence[TopicFigures]) -> Figures:
    lists = [topic.channels or () for topic in topics]
    channels = list(itertools.chain.from_iterable(lists))
    numbers = _read_rows(_topic_numbers, topics, len(_TOPIC_COLUMNS) + 1)
    topic_values = np.zeros((len(topics), VALUES), np.int64)
    topic_values[:, _TOPIC_COLUMNS] = numbers[:, :-1]
    channel_values = np.zeros((len(channels), VALUES), np.int64)
    channel_values[:, :_CHANNEL_COLUMNS] = _read_rows(_channel_numbers, channels, _CHANNEL_COLUMNS)
    return Figures(
        [topic.topic_name for topic in topics],
        list(map(len, lists)),
        [channel.channel_name for channel in channels],
        topic_values,
        channel_values,
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


def topic_rates(old: Ints, new: Ints, elapsed_s: float) -> Doubles:
    """Unknown (nan) if the counters began anew."""
    rates = np.zeros((len(new), RATES))
    messages = new[:, MESSAGES] - old[:, MESSAGES]
    rates[:, IN] = messages / elapsed_s
    rates[messages < 0] = np.nan
    return rates


def channel_rates(old: Ints, new: Ints, elapsed_s: float) -> Doubles:
    """Unknown (nan) if the counters began anew, or if messages left that nobody took."""
    grown = new - old
    counted = grown[:, [MESSAGES, MESSAGES, REQUEUES, TIMEOUTS]]
    is_new = (counted < 0).any(axis=1)
    left = counted[:, OUT]
    left -= grown[:, DEPTH] + grown[:, IN_FLIGHT] + grown[:, DEFERRED]
    is_emptied = (left > 0) & (old[:, CLIENTS] == 0) & (new[:, CLIENTS] == 0)
    # nsqd reads its counters one after another while messages move: a few may seem to appear from nowhere.
    np.maximum(left, 0, out=left)
    rates: Doubles = counted / elapsed_s
    rates[is_new | is_emptied] = np.nan
    return rates


def unknown_rates(rows: int) -> Doubles:
    return np.full((rows, RATES), np.nan)


BLOCK = 4096  # rows processed at once, in less than a millisecond

Emptied = dict[str, frozenset[str]]  # channels emptied since the previous answer, by topic


@dataclass(eq=False, slots=True, weakref_slot=True)
class Layout:
    """The list of rows. The same object as long as a node reports the same names, and for all nodes that do."""

    topics: list[str] = field(default_factory=list)
    channel_counts: list[int] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    pairs: list[tuple[str, str]] = field(default_factory=list)  # of `channels`, with their topics

    def fits(self, figures: Figures) -> bool:
        """Whether it has these names, in this order."""
        return (
            figures.topics == self.topics
            and figures.channels == self.channels
            and figures.channel_counts == self.channel_counts
        )


class Layouts:
    """The layouts of all nodes: in a large cluster many have the same topics and channels."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, Layout] = WeakValueDictionary()

    async def get(self, figures: Figures, slices: Slices) -> Layout:
        """The layout with the names of these figures: a known one, or a new one."""
        key = hash((tuple(figures.topics), tuple(figures.channel_counts), tuple(figures.channels)))
        known = self._known.get(key)
        if known is None or not known.fits(figures):
            await slices.pause()
            known = self._known[key] = await _make_layout(figures, slices)
        return known


@dataclass(slots=True)
class Sample:
    """Rows as in `layout`; its arrays never change."""

    layout: Layout = field(default_factory=Layout)
    topics: Ints = field(default_factory=lambda: np.zeros((0, VALUES), np.int64))
    channels: Ints = field(default_factory=lambda: np.zeros((0, VALUES), np.int64))
    sizes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # bytes; NO_SIZE: not said
    topic_rates: Doubles = field(default_factory=lambda: unknown_rates(0))
    channel_rates: Doubles = field(default_factory=lambda: unknown_rates(0))

    def counts(self) -> Counts:
        """Of the whole node: waiting messages of topics and of channels, and the messages of its topics."""
        total = self.topics.sum(axis=0) + self.channels.sum(axis=0)
        total[MESSAGES] = self.topics[:, MESSAGES].sum()
        return Counts(*total[:COUNTS].tolist())

    def rates(self) -> Rates:
        """Of the whole node, as far as they are known."""
        total = _sum_known(self.channel_rates)
        total[IN] = _sum_known(self.topic_rates)[IN]
        return Rates(*total.tolist())

    def without_rates(self) -> "Sample":
        """Its node does not answer: the numbers stay, the rates are unknown."""
        topics, channels = unknown_rates(len(self.topics)), unknown_rates(len(self.channels))
        return Sample(self.layout, self.topics, self.channels, self.sizes, topics, channels)


def _sum_known(rates: Doubles) -> Doubles:
    known = rates[:, IN] == rates[:, IN]
    total: Doubles = (rates if known.all() else rates[known]).sum(axis=0)
    return total


async def make_sample(
    figures: Figures,
    old: Sample,
    layouts: Layouts,
    elapsed_s: float,
    emptied: Emptied,
    slices: Slices,
) -> Sample:
    """Computed from this answer and the previous one; elapsed_s is 0 if there is none to compare with."""
    layout = old.layout
    if not layout.fits(figures):
        figures = drop_repeated(figures)
        layout = await layouts.get(figures, slices)
    topics, channels = figures.topic_values, figures.channel_values
    sample = Sample(
        layout,
        topics,
        channels,
        figures.sizes,
        unknown_rates(len(topics)),
        unknown_rates(len(channels)),
    )
    if not elapsed_s:
        return sample
    await slices.pause()
    before = old
    if layout is not old.layout:
        before = Sample(
            layout,
            await _align(old.layout.topics, old.topics, layout.topics, slices),
            await _align(old.layout.pairs, old.channels, layout.pairs, slices),
        )
    for begin in range(0, len(topics), BLOCK):
        rows = slice(begin, begin + BLOCK)
        sample.topic_rates[rows] = topic_rates(before.topics[rows], topics[rows], elapsed_s)
        await slices.pause()
    for begin in range(0, len(channels), BLOCK):
        rows = slice(begin, begin + BLOCK)
        sample.channel_rates[rows] = channel_rates(before.channels[rows], channels[rows], elapsed_s)
        await slices.pause()
    if emptied:
        nothing: frozenset[str] = frozenset()
        gone = [row for row, (t, c) in enumerate(layout.pairs) if c in emptied.get(t, nothing)]
        sample.channel_rates[gone] = np.nan
    return sample


def drop_repeated(figures: Figures) -> Figures:
    topics, rows, channel_rows, row = set(), [], [], 0
    for index, (name, count) in enumerate(zip(figures.topics, figures.channel_counts, strict=True)):
        if name not in topics:
            topics.add(name)
            rows.append(index)
            names = figures.channels[row : row + count]
            first = dict(zip(reversed(names), range(row + count - 1, row - 1, -1), strict=True))
            channel_rows.append(sorted(first.values()))
        row += count
    kept = [row for found in channel_rows for row in found]
    if len(rows) == len(figures.topics) and len(kept) == len(figures.channels):
        return figures
    return Figures(
        [figures.topics[row] for row in rows],
        list(map(len, channel_rows)),
        [figures.channels[row] for row in kept],
        figures.topic_values[rows],
        figures.channel_values[kept],
        figures.sizes[rows],
    )


async def _make_layout(figures: Figures, slices: Slices) -> Layout:
    pairs, row = [], 0
    for topic, count in zip(figures.topics, figures.channel_counts, strict=True):
        pairs += [(topic, channel) for channel in figures.channels[row : row + count]]
        row += count
        await slices.pause()
    return Layout(figures.topics, figures.channel_counts, figures.channels, pairs)


async def _align(
    had: Sequence[Hashable], values: Ints, names: Sequence[Hashable], slices: Slices
) -> Ints:
    """The old rows of these names; zeros for new ones."""
    rows = await find_rows(await index_names(had, slices), names, slices)
    aligned = np.zeros((len(names), VALUES), np.int64)
    known = rows >= 0
    aligned[known] = values[rows[known]]
    return aligned


async def index_names(names: Sequence[Hashable], slices: Slices) -> dict[Hashable, int]:
    index: dict[Hashable, int] = {}
    for begin in range(0, len(names), BLOCK):
        index.update(zip(names[begin : begin + BLOCK], range(begin, len(names)), strict=False))
        await slices.pause()
    return index


async def find_rows(index: dict[Hashable, int], names: Sequence[Hashable], slices: Slices) -> Ints:
    """[names], -1 for missing ones."""
    found = np.empty(len(names), np.int64)
    for begin in range(0, len(names), BLOCK):
        part = names[begin : begin + BLOCK]
        found[begin : begin + len(part)] = [index.get(name, -1) for name in part]
        await slices.pause()
    return found
