"""One tick of the whole cluster, summed from its nodes' answers; in slices, because there may be 100,000 rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from nsqfast.nsqadmin.live.figures import NO_SIZE
from nsqfast.nsqadmin.live.joined import (
    Entity,
    Memory,
    Places,
    find_places,
    join,
    make_entities,
)
from nsqfast.nsqadmin.live.lookupds import LookupdWatch
from nsqfast.nsqadmin.live.model import (
    Channel,
    Cluster,
    Counts,
    Node,
    NodeState,
    Rates,
    Topic,
    Totals,
)
from nsqfast.nsqadmin.live.nodes import NodeWatch, parse_version
from nsqfast.nsqadmin.live.samples import Layout, Sample
from nsqfast.nsqadmin.live.slices import Slices


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
