"""One tick: what the nodes said last, summed over all of them, and what history says of it; frozen once it is made."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.answers import NO_SIZE
from nsqfast.nsqadmin.cluster.discovery import ZERO, parse_version
from nsqfast.nsqadmin.cluster.history import History, Trends, known_or_none
from nsqfast.nsqadmin.cluster.members import LookupdWatch, NodeWatch
from nsqfast.nsqadmin.cluster.model import (
    DEPTH,
    IN,
    IN_FLIGHT,
    NO_INTS,
    NO_PARTS,
    OUT,
    RATES,
    REQUEUE,
    TIMEOUT,
    Channel,
    Cluster,
    Counts,
    Ints,
    Lookupd,
    Node,
    NodeState,
    Topic,
    Totals,
)
from nsqfast.nsqadmin.cluster.samples import Layout, Sample, find_rows, index_names
from nsqfast.nsqadmin.cluster.sums import RowPlaces, Sums, find_places, read_rows, sum_rows

ChannelName = tuple[str, str]
# Of a budget: making one takes some microseconds, and one topic may have all of them.
CHANNEL_UNITS = 8


@dataclass(slots=True)
class Arrangement:
    """Where the rows of the nodes belong: computed anew only when a node's names change, or a node comes or goes."""

    layouts: list[Layout] = field(default_factory=list)
    topics: RowPlaces[str] = field(default_factory=RowPlaces)
    channels: RowPlaces[ChannelName] = field(default_factory=RowPlaces)
    owners: Ints = field(default_factory=lambda: NO_INTS)  # of each channel: the index of its topic

    async def follow(self, samples: Sequence[Sample], slices: Slices) -> None:
        layouts = [sample.layout for sample in samples]
        if layouts != self.layouts:
            self.topics = await find_places([layout.topics for layout in layouts], slices)
            self.channels = await find_places([layout.pairs for layout in layouts], slices)
            self.layouts = layouts
            index = await index_names(self.topics.names, slices)
            owners = [topic for topic, _ in self.channels.names]
            self.owners = await find_rows(index, owners, slices)


async def make_tick(
    arrangement: Arrangement,
    history: History,
    tick: int,
    at: float,
    nodes: Iterable[NodeWatch],
    lookupds: Sequence[LookupdWatch],
) -> Cluster:
    """Uses `nodes` and `lookupds` as they are at the call, although they continue to change."""
    ordered = sorted(nodes, key=lambda node: (node.identity.hostname, node.key))
    newest = max((parse_version(node.identity.version) for node in ordered), default=ZERO)
    # All in one step: a node may be asked, and answer, at any time.
    views = {node.key: node.view(newest) for node in ordered}
    samples = [node.sample for node in ordered]
    slices = Slices()
    await slices.pause()
    await arrangement.follow(samples, slices)
    active = set(arrangement.topics.names)
    for lookupd in lookupds:
        lookupd.inactive = frozenset(name for name in lookupd.topics if name not in active)
    known = {lookupd.address: lookupd.view() for lookupd in lookupds}
    await slices.pause()
    topics, channels = await _sum_all(arrangement, list(views), samples, slices)
    totals = _total(topics, channels, views)
    trends = await history.take(at, views, totals, topics, channels, slices)
    sizes = await _sum_sizes(arrangement.topics, samples, slices)
    made = await _make_topics(topics, channels, trends, sizes, slices)
    if inactive := {name for lookupd in known.values() for name in lookupd.topics} - active:
        made |= {name: _make_inactive(name, known.values()) for name in inactive}
        made = {name: made[name] for name in sorted(made)}
        await slices.pause()
    return Cluster(
        tick,
        at,
        totals,
        MappingProxyType(made),
        MappingProxyType(views),
        MappingProxyType(known),
    )


async def _sum_all(
    arrangement: Arrangement, keys: list[str], samples: Sequence[Sample], slices: Slices
) -> tuple[Sums[str], Sums[ChannelName]]:
    """The rates of a topic are those of its channels, except for what is published."""
    values, rates = [one.topics for one in samples], [one.topic_rates for one in samples]
    topics = await sum_rows(arrangement.topics, keys, values, rates, slices)
    values, rates = [one.channels for one in samples], [one.channel_rates for one in samples]
    channels = await sum_rows(arrangement.channels, keys, values, rates, slices)
    total = topics.rates.copy()
    for column in (OUT, REQUEUE, TIMEOUT):
        column_s = channels.rates[:, column]
        total[:, column] += np.bincount(arrangement.owners, column_s, len(total))
    total.setflags(write=False)
    await slices.pause()
    return replace(topics, rates=total), channels


def _total(topics: Sums[str], channels: Sums[ChannelName], nodes: Mapping[str, Node]) -> Totals:
    # A cluster without topics is known to be idle.
    is_known = topics.is_known.any() or any(node.rates is not None for node in nodes.values())
    rates = topics.rates[topics.is_known].sum(axis=0).tolist() if is_known else [None] * RATES
    return Totals(
        in_s=rates[IN],
        out_s=rates[OUT],
        depth=int(topics.values[:, DEPTH].sum() + channels.values[:, DEPTH].sum()),
        in_flight_count=int(channels.values[:, IN_FLIGHT].sum()),
        requeue_s=rates[REQUEUE],
        nodes_up=sum(node.state is NodeState.UP for node in nodes.values()),
        nodes_known=len(nodes),
    )


async def _sum_sizes(
    places: RowPlaces[str], samples: Sequence[Sample], slices: Slices
) -> list[int | None]:
    """Bytes published to each topic; None if a node does not report it."""
    total = np.zeros(len(places.names), np.int64)
    is_known = np.ones(len(places.names), bool)
    for where, sample in zip(places.of_nodes, samples, strict=True):
        total[where] += sample.sizes
        is_known[where] &= sample.sizes != NO_SIZE
        await slices.pause()
    found = zip(total.tolist(), is_known.tolist(), strict=True)
    return [size if known else None for size, known in found]


async def _make_topics(
    topics: Sums[str],
    channels: Sums[ChannelName],
    trends: Trends,
    sizes: list[int | None],
    slices: Slices,
) -> dict[str, Topic]:
    made: dict[str, Topic] = {}
    # Read as they are needed: a hundred thousand of each would take long to be freed together.
    ages = trends.ages_s, trends.is_minimum, trends.is_estimate
    every = zip(
        channels.names, channels.queues(), read_rows(trends.channel_slopes, *ages), strict=True
    )
    channel = next(every, None)
    for name, queue, (slope,), size in zip(
        topics.names, topics.queues(), read_rows(trends.topic_slopes), sizes, strict=True
    ):
        own: dict[str, Channel] = {}
        while channel is not None and channel[0][0] == name:
            (_, own_name), own_queue, (own_slope, oldest_s, *rest) = channel
            trend = known_or_none(own_slope), known_or_none(oldest_s), *rest
            own[own_name] = Channel(name, own_name, *own_queue, *trend)
            await slices.pause(CHANNEL_UNITS)
            channel = next(every, None)
        counts, parts, rates = queue
        made[name] = Topic(name, counts, parts, own, rates, known_or_none(slope), size)
        await slices.pause()
    return made


def _make_inactive(name: str, lookupds: Iterable[Lookupd]) -> Topic:
    channels = sorted({each for lookupd in lookupds for each in lookupd.topics.get(name, ())})
    made = {each: Channel(name, each, Counts(), NO_PARTS, None) for each in channels}
    return Topic(name, Counts(), NO_PARTS, MappingProxyType(made), None)
