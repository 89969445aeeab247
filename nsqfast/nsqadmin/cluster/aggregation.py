"""One tick of the whole cluster: the rows of its nodes' answers, joined by topic and channel, and summed.

In slices, because there may be 100,000 rows.
"""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.members import LookupdWatch, NodeWatch, parse_version
from nsqfast.nsqadmin.cluster.model import (
    COUNTS,
    PAUSED,
    RATES,
    VALUES,
    Channel,
    Cluster,
    Counts,
    Doubles,
    Ints,
    Node,
    NodePart,
    NodeParts,
    NodeState,
    Rates,
    Rows,
    Topic,
    Totals,
)
from nsqfast.nsqadmin.cluster.samples import BLOCK, NO_SIZE, Layout, Sample, find_rows, index_names

ENTITIES_AT_ONCE = 256

Name = TypeVar("Name", bound=Hashable)


Where = slice | Ints


@dataclass(slots=True)
class Places(Generic[Name]):
    """Where the rows of each node belong. Unchanged between ticks while the nodes report the same names."""

    names: list[Name] = field(default_factory=list)  # of the entities, sorted
    entities: list[Where] = field(default_factory=list)  # of each node: indexes of `names`
    begins: list[int] = field(
        default_factory=lambda: [0]
    )  # of each entity, and the end of the last
    order: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # see parts.Rows
    nodes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


async def find_places(lists: Sequence[Sequence[Name]], slices: Slices) -> Places[Name]:
    """Compute it from the names that each node reports, none of them twice."""
    distinct = {id(names): names for names in lists}  # many nodes may share one
    every: dict[Name, None] = {}
    for names in distinct.values():
        for begin in range(0, len(names), BLOCK):
            every.update(dict.fromkeys(names[begin : begin + BLOCK]))
            await slices.pause()
    known = sorted(every)  # type: ignore[type-var]
    await slices.pause()
    index = await index_names(known, slices)
    found_rows = {key: await find_rows(index, names, slices) for key, names in distinct.items()}
    entities = [found_rows[id(names)] for names in lists]
    sizes = np.zeros(len(known), np.int64)
    for found in entities:
        sizes[found] += 1
    await slices.pause()
    where = {key: _as_slice(found) for key, found in found_rows.items()}
    ends = sizes.cumsum()
    free, rows = ends - sizes, int(sizes.sum())
    order, nodes, begin = np.empty(rows, np.int64), np.empty(rows, np.int64), 0
    for node, found in enumerate(entities):
        taken = free[found]
        free[found] += 1
        order[taken] = np.arange(begin, begin + len(found))
        nodes[taken] = node
        begin += len(found)
        await slices.pause()
    return Places(known, [where[id(names)] for names in lists], [0, *ends.tolist()], order, nodes)


def _as_slice(indexes: Ints) -> Where:
    """Use a slice if they are consecutive, as on a node that has everything: ten times faster."""
    if len(indexes) and (np.diff(indexes) == 1).all():
        return slice(int(indexes[0]), int(indexes[-1]) + 1)
    return indexes


class Memory:
    """Memory for the rows of a tick; reused when nobody has that tick any more.

    New memory costs a page fault for each 4 kB written, which takes longer than the writing.
    """

    def __init__(self) -> None:
        self._arrays: list[tuple[ReferenceType[Rows], Ints, Doubles]] = []

    def take(self, keys: Sequence[str], order: Ints, nodes: Ints) -> Rows:
        """Arrays with arbitrary content."""
        count = len(order)
        self._arrays = [one for one in self._arrays if len(one[1]) == count or one[0]()]
        free = next((one for one in self._arrays if len(one[1]) == count and not one[0]()), None)
        if free is None:
            values, rates = np.empty((count, VALUES), np.int64), np.empty((count, RATES))
        else:
            self._arrays = [one for one in self._arrays if one is not free]
            values, rates = free[1:]
        rows = Rows(keys, order, nodes, values, rates)
        self._arrays.append((ref(rows), values, rates))
        return rows


@dataclass(slots=True)
class Joined:
    """The result of one tick."""

    rows: Rows
    begins: list[int]
    values: Ints  # [entities, VALUES], summed, so PAUSED counts the nodes where it is; ages mean nothing
    rates: Doubles  # [entities, RATES], sums of the known ones
    is_known: NDArray[np.bool_]  # [entities], on any node


async def join(
    places: Places[Name],
    memory: Memory,
    keys: Sequence[str],
    values: Sequence[Ints],
    rates: Sequence[Doubles],
    slices: Slices,
) -> Joined:
    """`values` and `rates` of each node; the nodes' `keys`."""
    rows = memory.take(keys, places.order, places.nodes)
    count = len(places.names)
    found = Joined(
        rows,
        places.begins,
        np.zeros((count, VALUES), np.int64),
        np.zeros((count, RATES)),
        np.zeros(count, bool),
    )
    row = 0
    for node, where in enumerate(places.entities):
        for begin in range(0, len(values[node]), BLOCK):
            some, some_rates = (
                values[node][begin : begin + BLOCK],
                rates[node][begin : begin + BLOCK],
            )
            rows.values[row : row + len(some)] = some
            rows.rates[row : row + len(some)] = some_rates
            row += len(some)
            _add(found, _part_of(where, begin), some, some_rates)
            await slices.pause()
    return found


def _part_of(where: Where, begin: int) -> Where:
    if isinstance(where, slice):
        return slice(where.start + begin, min(where.start + begin + BLOCK, where.stop))
    return where[begin : begin + BLOCK]


def _add(joined: Joined, where: Where, values: Ints, rates: Doubles) -> None:
    joined.values[where] += values
    known = rates[:, 0] == rates[:, 0]
    if known.all():
        joined.rates[where] += rates
        joined.is_known[where] = True
    else:
        joined.rates[where] += np.where(known[:, None], rates, 0.0)
        joined.is_known[where] |= known


Entity = tuple[Counts, Sequence[NodePart], Rates | None]


def make_entities(joined: Joined) -> Iterator[Entity]:
    """Make them one after another; a few at a time are read from the arrays."""
    rows, begins = joined.rows, joined.begins
    for begin in range(0, len(joined.values), ENTITIES_AT_ONCE):
        block = slice(begin, begin + ENTITIES_AT_ONCE)
        for index, values, rates, is_known in zip(
            itertools.count(begin),
            joined.values[block].tolist(),
            joined.rates[block].tolist(),
            joined.is_known[block].tolist(),
            strict=False,
        ):
            parts = NodeParts(rows, begins[index], begins[index + 1], values[PAUSED])
            found = Rates(*rates) if is_known else None
            yield Counts(*values[:COUNTS]), cast("Sequence[NodePart]", parts), found


@dataclass(slots=True)
class Arrangement:
    """Where the rows of the nodes belong: computed anew only when a node's names change, or a node comes or goes."""

    layouts: list[Layout] = field(default_factory=list)
    topics: Places[str] = field(default_factory=Places)
    channels: Places[tuple[str, str]] = field(default_factory=Places)
    topic_memory: Memory = field(default_factory=Memory)
    channel_memory: Memory = field(default_factory=Memory)

    async def follow(self, samples: Sequence[Sample], slices: Slices) -> None:
        """Follow these nodes."""
        layouts = [sample.layout for sample in samples]
        if layouts != self.layouts:
            self.topics = await find_places([layout.topics for layout in layouts], slices)
            self.channels = await find_places([layout.pairs for layout in layouts], slices)
            self.layouts = layouts


async def aggregate(
    arrangement: Arrangement,
    tick: int,
    at: float,
    nodes: Iterable[NodeWatch],
    lookupds: Sequence[LookupdWatch],
) -> Cluster:
    """Uses `nodes` and `lookupds` as they are at the call, although they continue to change."""
    ordered = sorted(nodes, key=lambda node: (node.identity.hostname, node.key))
    newest = max((parse_version(node.identity.version) for node in ordered), default=(0, 0, 0))
    # All in one step: a node may be asked, and answer, at any time.
    views = {node.key: node.view(newest) for node in ordered}
    samples = [node.sample for node in ordered]
    slices = Slices()
    await slices.pause()
    await arrangement.follow(samples, slices)
    active = set(arrangement.topics.names)
    _find_inactive(lookupds, active)
    known = {lookupd.address: lookupd.view() for lookupd in lookupds}
    await slices.pause()
    made = await _make_topics(arrangement, list(views), samples, slices)
    inactive = {name for lookupd in known.values() for name in lookupd.topics} - active
    if inactive:
        for name in inactive:
            lists = [lookupd.topics.get(name, ()) for lookupd in known.values()]
            made.topics[name] = _inactive_topic(name, {c for names in lists for c in names})
        made.topics = {name: made.topics[name] for name in sorted(made.topics)}
        await slices.pause()
    return Cluster(
        tick,
        at,
        _totals(made, views),
        made.topics,
        views,
        known,
        has_lookupds=bool(lookupds),
        warnings=_warnings(views, lookupds, at),
    )


@dataclass(slots=True)
class _Made:
    topics: dict[str, Topic] = field(default_factory=dict)
    depth: int = 0
    in_flight_count: int = 0
    rates: Rates = field(default_factory=lambda: Rates(0.0))
    is_known: bool = False

    def add(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.depth += topic.counts.depth
        for channel in topic.channels.values():
            self.depth += channel.counts.depth
            self.in_flight_count += channel.counts.in_flight_count
        if topic.rates is not None:
            self.is_known = True
            self.rates.in_s += topic.rates.in_s
            self.rates.out_s += topic.rates.out_s
            self.rates.requeue_s += topic.rates.requeue_s


async def _make_topics(
    arrangement: Arrangement, keys: list[str], samples: Sequence[Sample], slices: Slices
) -> _Made:
    places, found = arrangement.topics, arrangement.channels
    values, rates = [s.topics for s in samples], [s.topic_rates for s in samples]
    topics = await join(places, arrangement.topic_memory, keys, values, rates, slices)
    values, rates = [s.channels for s in samples], [s.channel_rates for s in samples]
    channels = await join(found, arrangement.channel_memory, keys, values, rates, slices)
    sizes = await _sum_sizes(places, samples, slices)
    made = _Made()
    rest = zip(found.names, make_entities(channels), strict=True)
    pair = next(rest, None)
    for name, entity, size in zip(places.names, make_entities(topics), sizes, strict=True):
        counts, parts, total = entity
        topic = Topic(name, counts, parts, {}, total, message_bytes=size)
        while pair is not None and pair[0][0] == name:
            _add_channel(topic, pair[0][1], pair[1])
            pair = next(rest, None)
        made.add(topic)
        await slices.pause()
    return made


def _add_channel(topic: Topic, name: str, entity: Entity) -> None:
    counts, parts, rates = entity
    topic.channels[name] = Channel(topic.name, name, counts, parts, rates)
    if topic.rates is not None and rates is not None:
        topic.rates.out_s += rates.out_s
        topic.rates.requeue_s += rates.requeue_s
        topic.rates.timeout_s += rates.timeout_s


async def _sum_sizes(
    places: Places[str], samples: Sequence[Sample], slices: Slices
) -> list[int | None]:
    """Bytes published to each topic; None if a node does not report it."""
    total = np.zeros(len(places.names), np.int64)
    is_known = np.ones(len(places.names), bool)
    for where, sample in zip(places.entities, samples, strict=True):
        total[where] += sample.sizes
        is_known[where] &= sample.sizes != NO_SIZE
        await slices.pause()
    return [
        size if known else None
        for size, known in zip(total.tolist(), is_known.tolist(), strict=True)
    ]


def _find_inactive(lookupds: Sequence[LookupdWatch], active: set[str]) -> None:
    for lookupd in lookupds:
        lookupd.inactive = frozenset(name for name in lookupd.topics if name not in active)


def _inactive_topic(name: str, channels: set[str]) -> Topic:
    empty = {c: Channel(name, c, Counts(), [], None) for c in sorted(channels)}
    return Topic(name, Counts(), [], empty, None)


def _totals(made: _Made, nodes: dict[str, Node]) -> Totals:
    totals, rates = Totals(), made.rates
    totals.depth, totals.in_flight_count = made.depth, made.in_flight_count
    totals.nodes_known = len(nodes)
    totals.nodes_up = sum(node.state is NodeState.UP for node in nodes.values())
    # A cluster without topics is known to be idle.
    if made.is_known or any(node.rates is not None for node in nodes.values()):
        totals.in_s, totals.out_s, totals.requeue_s = rates.in_s, rates.out_s, rates.requeue_s
    return totals


def _warnings(nodes: dict[str, Node], lookupds: Sequence[LookupdWatch], at: float) -> list[str]:
    silent = [w for w in lookupds if w.question.state is not NodeState.UP]
    found = [f"nsqlookupd {w.address}: {w.question.error}" for w in silent]
    if silent and len(silent) == len(lookupds):
        found.append("no nsqlookupd answers: the list of nodes is the last that was known")
    found += [
        f"nsqd {node.hostname} ({node.key}): {node.error}"
        for node in nodes.values()
        if node.state is not NodeState.UP and not node.is_planned(at)
    ]
    return found
