"""The numbers of one tick from which rules conclude: those of nodes that answered, and that consumers may see."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsqfast.nsqadmin.cluster.model import (
    CLIENTS,
    COUNTS,
    DEPTH,
    FAILING,
    HELD,
    LETTERS,
    PAUSED,
    REFUSING,
    Bools,
    Channel,
    Cluster,
    Counts,
    Ints,
    NodePart,
    NodeParts,
    NodeState,
    Rates,
    Topic,
    make_rates,
)


class UpNodeChannel(NamedTuple):
    """A channel on the nodes that answer and do not hide its topic."""

    active_count: int  # of them, those where it is not paused: the numbers are theirs
    paused: Sequence[NodePart]
    depth: int
    in_flight: int
    clients: int
    rates: Rates | None  # None: unknown on one of them


class UpNodeNumbers:
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
        self._masks: dict[tuple[int, frozenset[str]], Bools] = {}
        # Consumers are kept away from a tombstoned topic, so they are not missing there.
        self._hidden: dict[str, set[str]] = {}
        for key, node in cluster.nodes.items():
            for topic in node.tombstones:
                self._hidden.setdefault(topic, set()).add(key)

    def ignored(self, topic: str) -> frozenset[str]:
        hidden = self._hidden.get(topic)
        return self.silent | hidden if hidden else self.silent

    def is_unclear(self, parts: NodeParts) -> bool:
        """Whether one of these nodes may still have what was there before."""
        return bool(self._stale) and any(node in self._stale for node in parts.node_keys())

    def topic_parts(self, topic: Topic) -> list[NodePart]:
        return topic.parts.make(self._counted(topic.name, topic.parts))

    def share(self, channel: Channel) -> UpNodeChannel:
        parts = channel.parts
        if not self.ignored(channel.topic) and not parts.paused_count:
            counts = channel.counts
            numbers = counts.depth, counts.in_flight_count, counts.client_count
            return UpNodeChannel(len(parts), (), *numbers, channel.rates)
        places = self._counted(channel.topic, parts)
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
        return UpNodeChannel(len(values), paused, *numbers, total)

    def longest_held(self, channel: Channel) -> tuple[int, str]:
        """The longest time in ms without a FIN or REQ from a consumer that has messages, and its node; 0: unknown."""
        parts, rows = channel.parts, channel.parts.rows
        if not _has_any(parts, HELD):
            return 0, ""
        places = self._counted(channel.topic, parts)
        held = rows.values[rows.order[places], HELD].tolist()
        longest_ms = max(held, default=0)
        return longest_ms, rows.keys[rows.nodes[places[held.index(longest_ms)]]] if held else ""

    def failing_nodes(self, channel: Channel) -> list[str]:
        """Counted nodes where its policy pauses it."""
        return self._nodes_with(FAILING, channel)

    def refusing_nodes(self, channel: Channel) -> list[str]:
        """Counted nodes where the topic of its dead letters takes none."""
        return self._nodes_with(REFUSING, channel)

    def _nodes_with(self, column: int, channel: Channel) -> list[str]:
        if not _has_any(channel.parts, column):
            return []
        rows, places = channel.parts.rows, self._counted(channel.topic, channel.parts)
        found = places[rows.values[rows.order[places], column] != 0]
        return [rows.keys[node] for node in rows.nodes[found].tolist()]

    def has_dead_letters(self, topic: str) -> bool:
        """Whether one of its nodes says so."""
        found = self.cluster.topics.get(topic)
        return found is not None and _has_any(found.parts, LETTERS)

    def serving_nodes(self, channel: Channel) -> list[str]:
        """Counted nodes with waiting messages and consumers."""
        places, rows = self._counted(channel.topic, channel.parts), channel.parts.rows
        depth, clients, paused = rows.values[rows.order[places]][:, [DEPTH, CLIENTS, PAUSED]].T
        serving = places[(depth != 0) & (clients != 0) & (paused == 0)]
        return [rows.keys[node] for node in rows.nodes[serving].tolist()]

    def _counted(self, topic: str, parts: NodeParts) -> Ints:
        """Indexes of Rows.order: its parts on the nodes that count."""
        rows, ignored = parts.rows, self.ignored(topic)
        key = id(rows), ignored  # the tick keeps the rows: the same two, and the same few sets
        if key not in self._masks:
            self._masks[key] = np.array([one not in ignored for one in rows.keys], bool)
        return parts.places_on(self._masks[key])


def _has_any(parts: NodeParts, column: int) -> bool:
    """Whether this number is not 0 on one of the nodes."""
    rows = parts.rows
    return bool(rows.values[rows.order[parts.begin : parts.end], column].any())
