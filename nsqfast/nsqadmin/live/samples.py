"""The last answer of one nsqd: the names of its topics and channels, and arrays with a row for each."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import numpy as np

from nsqfast.nsqadmin.live.figures import Figures
from nsqfast.nsqadmin.live.model import Counts, Rates
from nsqfast.nsqadmin.live.parts import COUNTS, VALUES, Doubles, Ints
from nsqfast.nsqadmin.live.rates import (
    IN,
    MESSAGES,
    channel_rates,
    topic_rates,
    unknown_rates,
)
from nsqfast.nsqadmin.live.slices import Slices

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
        """A layout that fits."""
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
    """Keep the first of repeated names."""
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
    """The position of each."""
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
