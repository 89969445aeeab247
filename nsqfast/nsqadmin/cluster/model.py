"""The cluster at one tick, for pages, problems, charts and exports: frozen, because everybody shares it.

A number is the sum over all known nodes; a node that did not answer at this tick counts with its last numbers (see
`Node.state`). A rate is per second since the tick before, from the numbers of each node alone, so a node that comes or
goes causes no false rate; None where it is not known (first tick, restart of nsqd, no answer). The rate of a channel or
topic is the sum over its nodes; one that did not answer counts with its last rates until it is DOWN.

A large cluster has 100,000 parts of topics and channels on nodes, so a tick keeps them in arrays, a row for each
(Rows), and makes a NodePart on demand. Topics and channels are structs that the garbage collector does not track,
because there may be thousands of them, new at each tick.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nsqfast.nsqadmin.cluster.answers import DrainFigures, UncleanStartFigures
from nsqfast.nsqadmin.cluster.commit_log import CommitLog

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Counts(msgspec.Struct, frozen=True, gc=False):
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
        return self.depth - self.backend_depth


class Rates(msgspec.Struct, frozen=True, gc=False):
    """Per second. `out` counts messages that left a channel: messages in, minus the growth of its depth, in-flight and
    deferred.

    For a topic, `in_s` counts published messages; the others are those of its channels, and 0 in its parts.
    """

    in_s: float
    out_s: float = 0.0
    requeue_s: float = 0.0
    timeout_s: float = 0.0


class NodePart(msgspec.Struct, frozen=True, gc=False):
    """A topic's or channel's share on one node."""

    node: str  # key of Cluster.nodes
    counts: Counts
    paused: bool
    rates: Rates | None
    # Only ours report these. The age of the oldest message; the longest time without a FIN or REQ from a consumer that
    # has messages, if it is a second or more.
    oldest_ms: int = 0
    held_ms: int = 0
    is_failing: bool = False  # a channel's policy pauses it, because its deliveries fail
    is_refusing: bool = False  # of a channel: the topic of its dead letters takes none
    has_dead_letters: bool = False  # of a topic


# Columns of Rows.values: the fields of Counts, then the other numbers of a NodePart; and of Rows.rates.
COUNTS, RATES = len(Counts.__struct_fields__), len(Rates.__struct_fields__)
DEPTH, BACKEND, MESSAGES, IN_FLIGHT, DEFERRED, REQUEUES, TIMEOUTS, CLIENTS = range(COUNTS)
PAUSED, OLDEST, HELD, FAILING, REFUSING, LETTERS = range(COUNTS, COUNTS + 6)
VALUES = COUNTS + 6
IN, OUT, REQUEUE, TIMEOUT = range(RATES)


class Rows(msgspec.Struct, frozen=True):
    """All topics, or all channels, of all nodes at one tick: one node after another, in the order of its answer."""

    keys: Sequence[str]  # of the nodes
    order: Ints  # [rows], of `values`; rows of one entity are adjacent, in the order of the nodes
    nodes: Ints  # [rows], indexes of `keys`, in that order
    values: Ints  # [rows, VALUES]
    rates: Doubles  # [rows, RATES], nan for unknown


class NodeParts(msgspec.Struct, frozen=True, gc=False):
    """The parts of one topic or channel: rows begin to end of Rows.order, made on demand."""

    rows: Rows
    begin: int
    end: int
    paused_count: int  # of its nodes, those where it is paused

    def __len__(self) -> int:
        return self.end - self.begin

    def __iter__(self) -> Iterator[NodePart]:
        return iter(self.make(slice(self.begin, self.end)))

    def node_keys(self) -> Iterator[str]:
        """The nodes, without the numbers."""
        keys = self.rows.keys
        return (keys[node] for node in self.rows.nodes[self.begin : self.end].tolist())

    def at(self, key: str) -> NodePart | None:
        """On this node; None if it has none."""
        keys, nodes = self.rows.keys, self.rows.nodes[self.begin : self.end]
        node = keys.index(key) if key in keys else -1
        row = int(nodes.searchsorted(node))
        if row == len(nodes) or nodes[row] != node:
            return None
        return self.make(slice(self.begin + row, self.begin + row + 1))[0]

    def places_on(self, is_wanted: Bools) -> Ints:
        """Indexes of Rows.order, on the nodes for which this is true; [nodes of Rows.keys]."""
        nodes = self.rows.nodes[self.begin : self.end]
        places: Ints = is_wanted[nodes].nonzero()[0] + self.begin
        return places

    def make(self, places: Ints | slice) -> list[NodePart]:
        """With these indexes of Rows.order."""
        rows = self.rows
        keys, order = rows.keys, rows.order[places]
        return [
            NodePart(
                keys[node],
                Counts(*values[:COUNTS]),
                bool(values[PAUSED]),
                make_rates(rates),
                values[OLDEST],
                values[HELD],
                bool(values[FAILING]),
                bool(values[REFUSING]),
                bool(values[LETTERS]),
            )
            for node, values, rates in zip(
                rows.nodes[places].tolist(),
                rows.values[order].tolist(),
                rows.rates[order].tolist(),
                strict=True,
            )
        ]


NO_INTS: Final = np.zeros(0, np.int64)
NO_ROWS: Final = Rows((), NO_INTS, NO_INTS, np.zeros((0, VALUES), np.int64), np.zeros((0, RATES)))
NO_PARTS: Final = NodeParts(NO_ROWS, 0, 0, 0)


def make_rates(rates: Sequence[float]) -> Rates | None:
    """From a row; None where they are unknown."""
    return Rates(*rates) if rates[0] == rates[0] else None


class NodeState(StrEnum):
    UP = "up"
    STALE = "stale"  # did not answer at the last tick or two: shown with its last numbers
    DOWN = "down"  # three ticks without an answer, or never one


class Channel(msgspec.Struct, frozen=True, gc=False):
    """One channel, over all nodes."""

    topic: str
    name: str
    counts: Counts
    parts: NodeParts
    rates: Rates | None
    # Messages per second over the last five minutes; None: too young.
    depth_slope: float | None = None
    oldest_s: float | None = None  # age of the oldest waiting message; None: none waits, or unknown
    oldest_is_minimum: bool = False  # it is at least that old: history does not reach further
    oldest_is_estimate: bool = True  # some node does not report it

    @property
    def is_ephemeral(self) -> bool:
        """Whether it goes with its last consumer."""
        return self.name.endswith("#ephemeral")


class Topic(msgspec.Struct, frozen=True, gc=False):
    """One topic, over all nodes. Without a part it is known only to nsqlookupd ("inactive")."""

    name: str
    counts: Counts
    parts: NodeParts
    channels: Mapping[str, Channel]  # a dict: the garbage collector would track any other mapping
    rates: Rates | None
    depth_slope: float | None = None  # of the topic's own queue
    message_bytes: int | None = None  # published since the start; None if a node does not report it

    @property
    def is_ephemeral(self) -> bool:
        """Whether it goes with its last channel."""
        return self.name.endswith("#ephemeral")


@dataclass(frozen=True, slots=True)
class Node:
    """One nsqd. Its key is `broadcast_address:http_port`, the address at which it is asked."""

    key: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    state: NodeState
    since: float  # unix time of the last change of state
    answered_at: float | None  # unix time of the last answer; None: never
    error: str  # why the last question failed; '' if it did not
    health: str  # as nsqd reports it: "OK", or "NOK - ..."
    start_time: int  # Unix time; 0: unknown
    is_out_of_date: bool  # some other node has a higher version
    counts: Counts  # of its topics' own queues, and of all its channels
    rates: Rates | None
    topic_count: int
    memory_bytes: int | None  # None: not requested, or not reported
    topology_zone: str = ""
    topology_region: str = ""
    lookupds: tuple[str, ...] = ()  # addresses of the nsqlookupd that know it
    remote_addresses: tuple[str, ...] = ()
    tombstones: frozenset[str] = frozenset()  # topics for which some nsqlookupd hides it
    drain: DrainFigures | None = None  # as it last said; None: it does not drain
    unclean_start: UncleanStartFigures | None = None  # that nobody has acknowledged
    commit_log: CommitLog | None = None
    planned_until: float = 0.0  # while it is down after a drain: so long that is no problem

    def is_planned(self, at: float) -> bool:
        """Whether it is down, and that is no problem at this Unix time."""
        return self.state is NodeState.DOWN and at < self.planned_until


@dataclass(frozen=True, slots=True)
class Lookupd:
    """One nsqlookupd, and what it knows."""

    address: str
    is_up: bool
    since: float
    answered_at: float | None
    error: str
    version: str = ""
    nodes: frozenset[str] = frozenset()  # keys of Cluster.nodes
    # Its inactive topics with their channels.
    topics: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Totals:
    """The six numbers of the first page."""

    in_s: float | None = None
    out_s: float | None = None
    depth: int = 0
    in_flight_count: int = 0
    requeue_s: float | None = None
    nodes_up: int = 0
    nodes_known: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """One tick. `tick` grows by one each time; 0 means that nothing was asked yet."""

    tick: int
    at: float  # unix time
    totals: Totals
    topics: Mapping[str, Topic]  # sorted by name
    nodes: Mapping[str, Node]  # sorted by hostname, then key
    lookupds: Mapping[str, Lookupd]  # by address, in the order of the flags; empty without any

    def nodes_of(self, parts: NodeParts) -> dict[str, Node]:
        """The nodes that have it, by their keys."""
        return {key: self.nodes[key] for key in parts.node_keys() if key in self.nodes}

    def channel_nodes(self, topic: str, channel: str) -> dict[str, Node]:
        """The nodes to which a user may have us send requests about this channel."""
        found = self.channel(topic, channel)
        return self.nodes_of(found.parts) if found else {}

    def channel(self, topic: str, channel: str) -> Channel | None:
        """One channel by its names; None if no node has it."""
        found = self.topics.get(topic)
        return found.channels.get(channel) if found else None


EMPTY = Cluster(0, 0.0, Totals(), {}, {}, {})
