"""One tick as the rules see it: the fresh numbers, and the channels that consumers are expected to read."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nsqfast.nsqadmin.cluster.model import (
    COUNTS,
    DEPTH,
    HELD,
    PAUSED,
    Channel,
    Cluster,
    Counts,
    NodePart,
    NodeParts,
    NodeState,
    Rates,
    Topic,
    make_rates,
    node_keys,
)
from nsqfast.nsqadmin.cluster.samples import CLIENTS

NOBODY: frozenset[str] = frozenset()


class Share(NamedTuple):
    """A channel on the nodes that answer and do not hide its topic."""

    active_count: int  # of them, those where it is not paused: the numbers are theirs
    paused: Sequence[NodePart]
    depth: int
    in_flight: int
    clients: int
    rates: Rates | None  # None: unknown on one of them


class Moment:
    """Created once for each tick."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.at = cluster.at
        # Their numbers are old: nothing is concluded from them.
        self.silent = frozenset(
            key for key, node in cluster.nodes.items() if node.state is not NodeState.UP
        )
        # They may answer again at the next tick.
        self._stale = {key for key, node in cluster.nodes.items() if node.state is NodeState.STALE}
        # What they have was never seen.
        self.is_partial = any(not cluster.nodes[key].start_time for key in self.silent)
        self._masks: dict[frozenset[str], NDArray[np.bool_]] = {}
        # Consumers are kept away from a tombstoned topic, so they are not missing there.
        self._hidden: dict[str, set[str]] = {}
        for key, node in cluster.nodes.items():
            for topic in node.tombstones:
                self._hidden.setdefault(topic, set()).add(key)

    def ignored(self, topic: str) -> frozenset[str]:
        """Nodes that do not count for it."""
        hidden = self._hidden.get(topic)
        return self.silent | hidden if hidden else self.silent

    def is_unclear(self, parts: Sequence[NodePart]) -> bool:
        """Whether one of these nodes may still have what was there before."""
        return bool(self._stale) and any(node in self._stale for node in node_keys(parts))

    def topic_parts(self, topic: Topic) -> Sequence[NodePart]:
        """Its parts that count."""
        ignored = self.ignored(topic.name)
        if not ignored:
            return topic.parts
        return [part for part in topic.parts if part.node not in ignored]

    def share(self, channel: Channel) -> Share:
        """Its share that counts."""
        ignored = self.ignored(channel.topic)
        if not ignored and not channel.paused_parts:
            counts = channel.counts
            numbers = counts.depth, counts.in_flight_count, counts.client_count
            return Share(len(channel.parts), (), *numbers, channel.rates)
        if isinstance(channel.parts, NodeParts):
            return self._sum_rows(channel.parts, ignored)
        fresh = [part for part in channel.parts if part.node not in ignored]
        paused = [part for part in fresh if part.paused]
        parts = [part for part in fresh if not part.paused]
        depth = sum(part.counts.depth for part in parts)
        in_flight = sum(part.counts.in_flight_count for part in parts)
        clients = sum(part.counts.client_count for part in parts)
        return Share(len(parts), paused, depth, in_flight, clients, add_rates(parts))

    def _sum_rows(self, parts: NodeParts, ignored: frozenset[str]) -> Share:
        places = parts.places_on(self._wanted(ignored))
        rows = parts.rows.order[places]
        values, rates = parts.rows.values[rows], parts.rows.rates[rows]
        is_paused = values[:, PAUSED] != 0
        paused = parts.make(places[is_paused]) if is_paused.any() else []
        if paused:
            values, rates = values[~is_paused], rates[~is_paused]
        # A single unknown one makes the sum unknown; the sum of none is 0.
        total = make_rates(rates.sum(axis=0).tolist()) if len(rates) else None
        counts = Counts(*values[:, :COUNTS].sum(axis=0).tolist())
        numbers = counts.depth, counts.in_flight_count, counts.client_count
        return Share(len(values), paused, *numbers, total)

    def _wanted(self, ignored: frozenset[str]) -> NDArray[np.bool_]:
        """[nodes]; asked for the same few sets repeatedly."""
        known = self._masks.get(ignored)
        if known is None:
            keys = self.cluster.nodes
            known = self._masks[ignored] = np.array([key not in ignored for key in keys], bool)
        return known

    def longest_held(self, channel: Channel) -> tuple[int, str]:
        """The longest time in ms without a FIN or REQ from a consumer that has messages, and its node; 0: unknown."""
        ignored, parts = self.ignored(channel.topic), channel.parts
        if not isinstance(parts, NodeParts):
            return max(
                ((part.held_ms, part.node) for part in parts if part.node not in ignored),
                default=(0, ""),
            )
        rows = parts.rows
        if not rows.values[rows.order[parts.begin : parts.end], HELD].any():
            return 0, ""
        places = parts.places_on(self._wanted(ignored))
        held = rows.values[rows.order[places], HELD].tolist()
        longest_ms = max(held, default=0)
        return longest_ms, rows.keys[rows.nodes[places[held.index(longest_ms)]]] if held else ""

    def serving_nodes(self, channel: Channel) -> list[str]:
        """Counted nodes with waiting messages and consumers."""
        ignored = self.ignored(channel.topic)
        parts = channel.parts
        if not isinstance(parts, NodeParts):
            return [
                part.node
                for part in parts
                if part.node not in ignored and not part.paused
                if part.counts.depth and part.counts.client_count
            ]
        places, rows = parts.places_on(self._wanted(ignored)), parts.rows
        depth, clients, paused = rows.values[rows.order[places]][:, [DEPTH, CLIENTS, PAUSED]].T
        serving = places[(depth != 0) & (clients != 0) & (paused == 0)]
        return [rows.keys[node] for node in rows.nodes[serving].tolist()]


def add_rates(parts: Sequence[NodePart]) -> Rates | None:
    """None if one of them is unknown, or there is none."""
    rates = [part.rates for part in parts if part.rates is not None]
    if not parts or len(rates) < len(parts):
        return None
    return Rates(
        sum(one.in_s for one in rates),
        sum(one.out_s for one in rates),
        sum(one.requeue_s for one in rates),
        sum(one.timeout_s for one in rates),
    )
