"""One tick of the whole cluster, summed from what its nodes answered; in slices, for its parts may be 100,000."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from nsqfast.nsqadmin.live.lookupds import LookupdWatch
from nsqfast.nsqadmin.live.model import (
    Channel,
    Cluster,
    Counts,
    Node,
    NodeState,
    Part,
    Rates,
    Topic,
    Totals,
)
from nsqfast.nsqadmin.live.nodes import NodeWatch, parse_version
from nsqfast.nsqadmin.live.rates import IDLE
from nsqfast.nsqadmin.live.shares import Share
from nsqfast.nsqadmin.live.slices import Slices


@dataclass(slots=True)
class Sums:
    """What the topics of the last tick were summed from: one of which no node says anything new needs no summing."""

    shares: dict[str, list[Share]] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)

    def topic(self, name: str, shares: list[Share]) -> Topic:
        """From the shares of all nodes."""
        before = self.shares.pop(name, ())  # not all at once: to free them takes a while
        if len(before) == len(shares) and all(map(operator.is_, before, shares)):
            return _again(self.topics[name])
        return _topic(name, shares)


def _again(topic: Topic) -> Topic:
    # What history adds to a topic or channel belongs to one tick.
    channels = {
        name: Channel(topic.name, name, channel.counts, channel.parts, channel.rates)
        for name, channel in topic.channels.items()
    }
    return replace(topic, channels=channels, depth_slope=None)


async def aggregate(
    last: Sums,
    tick: int,
    at: float,
    nodes: Iterable[NodeWatch],
    lookupds: Sequence[LookupdWatch],
) -> Cluster:
    """What `nodes` and `lookupds` are now is what counts, though they go on changing. Keeps its sums in `last`."""
    ordered = sorted(nodes, key=lambda node: (node.identity.hostname, node.key))
    newest = max((parse_version(node.identity.version) for node in ordered), default=(0, 0, 0))
    views = {node.key: node.view(newest) for node in ordered}
    shares = [node.shares for node in ordered]
    slices = Slices()
    groups = await _group(shares, slices)
    _find_inactive(lookupds, groups)
    known = {lookupd.address: lookupd.view() for lookupd in lookupds}
    names = set(groups)
    for lookupd in known.values():
        names.update(lookupd.topics)
    topics: dict[str, Topic] = {}
    for name in sorted(names):
        found = groups.get(name)
        if found is None:
            lists = [lookupd.topics.get(name, ()) for lookupd in known.values()]
            topics[name] = _inactive_topic(name, {c for channels in lists for c in channels})
        else:
            topics[name] = last.topic(name, found)
        await slices.pause()
    last.shares, last.topics = groups, topics
    return Cluster(
        tick,
        at,
        _totals(topics, views),
        topics,
        views,
        known,
        has_lookupds=bool(lookupds),
        warnings=_warnings(views, lookupds),
    )


async def _group(nodes: list[dict[str, Share]], slices: Slices) -> dict[str, list[Share]]:
    groups: dict[str, list[Share]] = {}
    for shares in nodes:
        for name, share in shares.items():
            group = groups.get(name)
            if group is None:
                groups[name] = [share]
            else:
                group.append(share)
        await slices.pause()
    return groups


def _find_inactive(lookupds: Sequence[LookupdWatch], groups: dict[str, list[Share]]) -> None:
    for lookupd in lookupds:
        lookupd.inactive = frozenset(name for name in lookupd.topics if name not in groups)


def _inactive_topic(name: str, channels: set[str]) -> Topic:
    empty = {c: Channel(name, c, Counts(), [], None) for c in sorted(channels)}
    return Topic(name, Counts(), [], empty, None)


def _topic(name: str, shares: list[Share]) -> Topic:
    counts, sizes = Counts(), 0
    says_size = True
    in_s, is_known = 0.0, False
    by_channel: dict[str, list[Part]] = {}
    for share in shares:
        figures = share.figures
        counts.depth += figures.depth
        counts.backend_depth += figures.backend_depth
        counts.message_count += figures.message_count
        if figures.message_bytes is None:
            says_size = False
        else:
            sizes += figures.message_bytes
        rates = share.part.rates
        if rates is not None:
            is_known = True
            in_s += rates.in_s
        for channel, part in zip(figures.channels or (), share.channels, strict=True):
            parts = by_channel.get(channel.channel_name)
            if parts is None:
                by_channel[channel.channel_name] = [part]
            else:
                parts.append(part)
    channels = {
        channel: _channel(name, channel, by_channel[channel]) for channel in sorted(by_channel)
    }
    total = _sum_rates(in_s, channels.values()) if is_known else None
    parts = [share.part for share in shares]
    return Topic(name, counts, parts, channels, total, message_bytes=sizes if says_size else None)


def _sum_rates(in_s: float, channels: Iterable[Channel]) -> Rates:
    total = Rates(in_s)
    for channel in channels:
        if channel.rates is not None:
            total.out_s += channel.rates.out_s
            total.requeue_s += channel.rates.requeue_s
            total.timeout_s += channel.rates.timeout_s
    return total


def _channel(topic: str, name: str, parts: list[Part]) -> Channel:
    depth = backend = messages = in_flight = deferred = requeued = timed_out = clients = 0
    in_s = out_s = requeue_s = timeout_s = 0.0
    is_known = False
    for part in parts:
        counts = part.counts
        depth += counts.depth
        backend += counts.backend_depth
        messages += counts.message_count
        in_flight += counts.in_flight_count
        deferred += counts.deferred_count
        requeued += counts.requeue_count
        timed_out += counts.timeout_count
        clients += counts.client_count
        rates = part.rates
        if rates is not None:
            is_known = True
            if rates is not IDLE:
                in_s += rates.in_s
                out_s += rates.out_s
                requeue_s += rates.requeue_s
                timeout_s += rates.timeout_s
    total = Counts(depth, backend, messages, in_flight, deferred, requeued, timed_out, clients)
    rates = Rates(in_s, out_s, requeue_s, timeout_s) if is_known else None
    return Channel(topic, name, total, parts, rates)


def _totals(topics: dict[str, Topic], nodes: dict[str, Node]) -> Totals:
    totals, rates, is_known = Totals(), Rates(0.0), False
    for topic in topics.values():
        totals.depth += topic.counts.depth
        for channel in topic.channels.values():
            totals.depth += channel.counts.depth
            totals.in_flight_count += channel.counts.in_flight_count
        if topic.rates is not None:
            is_known = True
            rates.in_s += topic.rates.in_s
            rates.out_s += topic.rates.out_s
            rates.requeue_s += topic.rates.requeue_s
    totals.nodes_known = len(nodes)
    totals.nodes_up = sum(node.state is NodeState.UP for node in nodes.values())
    # A cluster without topics is known to be idle.
    if is_known or any(node.rates is not None for node in nodes.values()):
        totals.in_s, totals.out_s, totals.requeue_s = rates.in_s, rates.out_s, rates.requeue_s
    return totals


def _warnings(nodes: dict[str, Node], lookupds: Sequence[LookupdWatch]) -> list[str]:
    silent = [w for w in lookupds if w.question.state is not NodeState.UP]
    found = [f"nsqlookupd {w.address}: {w.question.error}" for w in silent]
    if silent and len(silent) == len(lookupds):
        found.append("no nsqlookupd answers: the list of nodes is the last that was known")
    found += [
        f"nsqd {node.hostname} ({node.key}): {node.error}"
        for node in nodes.values()
        if node.state is not NodeState.UP
    ]
    return found
