"""Numbers of topics and channels: on one node (Part), or on all of them (Parts).

There are 100,000 of them in a large cluster, so a tick keeps them in arrays, a row for each topic or channel of each
node, and makes a Part on demand.
"""

from collections.abc import Iterator, Sequence
from typing import overload

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]


class Counts(msgspec.Struct, gc=False):
    """Numbers as nsqd reports them, or their sum over nodes. A topic has neither in-flight nor the numbers after it."""

    depth: int = 0
    backend_depth: int = 0
    message_count: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    client_count: int = 0

    @property
    def memory_depth(self) -> int:
        """The part of the depth that is in memory."""
        return self.depth - self.backend_depth


class Rates(msgspec.Struct, gc=False):
    """Per second. `out` counts messages that left a channel: messages in, minus the growth of its depth, in-flight and
    deferred.

    For a topic, `in_s` counts published messages; the others are those of its channels, and 0 in its parts.
    """

    in_s: float
    out_s: float = 0.0
    requeue_s: float = 0.0
    timeout_s: float = 0.0


class Part(msgspec.Struct, gc=False):
    """A topic's or channel's share on one node."""

    node: str  # key of Cluster.nodes
    counts: Counts
    paused: bool
    rates: Rates | None
    # Only ours report these. The age of the oldest message; the longest time without a FIN or REQ from a consumer that
    # has messages, if it is a second or more.
    oldest_ms: int = 0
    held_ms: int = 0


# Columns of Rows.values: the fields of Counts, then the other numbers of a Part.
COUNTS = len(Counts.__struct_fields__)
DEPTH = Counts.__struct_fields__.index("depth")
PAUSED, OLDEST, HELD = range(COUNTS, COUNTS + 3)
VALUES = COUNTS + 3
RATES = len(Rates.__struct_fields__)


class Rows(msgspec.Struct, frozen=True, weakref=True):
    """All topics, or all channels, of all nodes at one tick: one node after another, in the order of its answer."""

    keys: Sequence[str]  # of the nodes
    order: Ints  # [rows], of `values`; rows of one entity are adjacent, in the order of the nodes
    nodes: Ints  # [rows], indexes of `keys`, in that order
    values: Ints  # [rows, VALUES]
    rates: Doubles  # [rows, RATES], nan for unknown


class Parts(msgspec.Struct, frozen=True, gc=False):
    """Rows begin to end of Rows.order, as a sequence of Part."""

    rows: Rows
    begin: int
    end: int
    paused_count: int

    def __len__(self) -> int:
        return self.end - self.begin

    def __iter__(self) -> Iterator[Part]:
        return iter(self.make(slice(self.begin, self.end)))

    @overload
    def __getitem__(self, index: int) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> list[Part]: ...
    def __getitem__(self, index: int | slice) -> Part | list[Part]:
        found = range(self.begin, self.end)[index]
        if isinstance(found, int):
            return self.make(slice(found, found + 1))[0]
        return self.make(np.array(found, np.int64))

    def node_keys(self) -> Iterator[str]:
        """The nodes, without the numbers."""
        keys = self.rows.keys
        return (keys[node] for node in self.rows.nodes[self.begin : self.end].tolist())

    def at(self, node: int) -> Part | None:
        """On the node with this index of `Rows.keys`; None if that has none."""
        nodes = self.rows.nodes[self.begin : self.end]
        row = int(nodes.searchsorted(node))
        return self[row] if row < len(nodes) and nodes[row] == node else None

    def index_of(self, key: str) -> int:
        """For `at`; -1 for an unknown node."""
        keys = self.rows.keys
        return keys.index(key) if key in keys else -1

    def places_on(self, is_wanted: NDArray[np.bool_]) -> Ints:
        """Indexes of Rows.order, on the nodes for which this is true; [nodes of Rows.keys]."""
        nodes = self.rows.nodes[self.begin : self.end]
        places: Ints = is_wanted[nodes].nonzero()[0] + self.begin
        return places

    def make(self, places: Ints | slice) -> list[Part]:
        """With these indexes of Rows.order."""
        rows = self.rows
        keys, order = rows.keys, rows.order[places]
        return [
            Part(
                keys[node],
                Counts(*values[:COUNTS]),
                bool(values[PAUSED]),
                make_rates(rates),
                *values[OLDEST:],
            )
            for node, values, rates in zip(
                rows.nodes[places].tolist(),
                rows.values[order].tolist(),
                rows.rates[order].tolist(),
                strict=True,
            )
        ]


Sequence.register(Parts)


def make_rates(rates: Sequence[float]) -> Rates | None:
    """From a row; None where they are unknown."""
    return Rates(*rates) if rates[0] == rates[0] else None


def count_paused(parts: Sequence[Part]) -> int:
    """Nodes on which it is paused."""
    return parts.paused_count if isinstance(parts, Parts) else sum(part.paused for part in parts)


def oldest_ms(parts: Sequence[Part]) -> int:
    """The age of the oldest message, if every node where messages wait reports it; else 0."""
    if isinstance(parts, Parts):
        rows = parts.rows
        values = rows.values[rows.order[parts.begin : parts.end]]
        ages = values[values[:, DEPTH] > 0, OLDEST].tolist()
    else:
        ages = [part.oldest_ms for part in parts if part.counts.depth > 0]
    return max(ages) if all(ages) and ages else 0


def node_keys(parts: Sequence[Part]) -> Iterator[str]:
    """The nodes that have it."""
    return parts.node_keys() if isinstance(parts, Parts) else (part.node for part in parts)


def part_at(parts: Sequence[Part], node: str) -> Part | None:
    """The share of this node; None if it has none."""
    if isinstance(parts, Parts):
        return parts.at(parts.index_of(node))
    return next((part for part in parts if part.node == node), None)
