"""The cluster at one tick, for pages, problems, charts and exports. Nothing here changes after construction.

A number is the sum over all known nodes; a node that did not answer at this tick counts with its last numbers (see
`Node.state`). A rate is per second since the tick before, from the numbers of each node alone, so a node that comes or
goes causes no false rate; None where it is not known (first tick, restart of nsqd, no answer). The rate of a channel or
topic is the sum over its nodes; one that did not answer counts with its last rates until it is DOWN.

The part of a topic or channel on each node is made on demand: see live.parts. Topics and channels are structs that the
garbage collector does not track, because there may be thousands of them, new at each tick.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from nsqfast.nsqadmin.live.figures import DrainFigures, UncleanStartFigures
from nsqfast.nsqadmin.live.parts import Counts, Part, Parts, Rates, count_paused

__all__ = [
    "EMPTY",
    "Channel",
    "Cluster",
    "Counts",
    "Lookupd",
    "Node",
    "NodeState",
    "Part",
    "Parts",
    "Rates",
    "Topic",
    "Totals",
]


class NodeState(StrEnum):
    """The state of an nsqd."""

    UP = "up"
    STALE = "stale"  # did not answer at the last tick or two: shown with its last numbers
    DOWN = "down"  # three ticks without an answer, or never one


class Channel(msgspec.Struct, gc=False):
    """One channel, over all nodes."""

    topic: str
    name: str
    counts: Counts
    parts: Sequence[Part]
    rates: Rates | None
    depth_slope: float | None = (
        None  # messages per second over the last five minutes; None: too young
    )
    oldest_s: float | None = None  # age of the oldest waiting message; None: none waits, or unknown
    oldest_is_minimum: bool = False  # it is at least that old: history does not reach further
    oldest_is_estimate: bool = True  # some node does not report it

    @property
    def is_ephemeral(self) -> bool:
        """Whether it goes with its last consumer."""
        return self.name.endswith("#ephemeral")

    @property
    def paused_parts(self) -> int:
        """Nodes on which it is paused."""
        return count_paused(self.parts)


class Topic(msgspec.Struct, gc=False):
    """One topic, over all nodes. Without a part it is known only to nsqlookupd ("inactive")."""

    name: str
    counts: Counts
    parts: Sequence[Part]
    channels: dict[str, Channel]
    rates: Rates | None
    depth_slope: float | None = None  # of the topic's own queue
    message_bytes: int | None = None  # published since the start; None if a node does not report it

    @property
    def is_ephemeral(self) -> bool:
        """Whether it goes with its last channel."""
        return self.name.endswith("#ephemeral")

    @property
    def paused_parts(self) -> int:
        """Nodes on which it is paused."""
        return count_paused(self.parts)

    @property
    def total_depth(self) -> int:
        """Messages waiting in it and in all of its channels."""
        return self.counts.depth + sum(channel.counts.depth for channel in self.channels.values())


@dataclass(slots=True)
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
    planned_until: float = 0.0  # while it is down after a drain: so long that is no problem

    def is_planned(self, at: float) -> bool:
        """Whether it is down, and that is no problem at this Unix time."""
        return self.state is NodeState.DOWN and at < self.planned_until


@dataclass(slots=True)
class Lookupd:
    """One nsqlookupd."""

    address: str
    is_up: bool
    since: float
    answered_at: float | None
    error: str
    version: str = ""
    nodes: frozenset[str] = frozenset()  # keys of Cluster.nodes
    topics: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # its inactive topics with their channels


@dataclass(slots=True)
class Totals:
    """The six numbers of the first page."""

    in_s: float | None = None
    out_s: float | None = None
    depth: int = 0
    in_flight_count: int = 0
    requeue_s: float | None = None
    nodes_up: int = 0
    nodes_known: int = 0


@dataclass(slots=True)
class Cluster:
    """One tick. `tick` grows by one each time; 0 means that nothing was asked yet."""

    tick: int
    at: float  # unix time
    totals: Totals
    topics: dict[str, Topic]  # sorted by name
    nodes: dict[str, Node]  # sorted by hostname, then key
    lookupds: dict[str, Lookupd]  # by address, in the order of the flags
    has_lookupds: bool  # configured with --lookupd-http-address
    warnings: list[str] = field(default_factory=list)  # failed queries, one line each

    def channel(self, topic: str, channel: str) -> Channel | None:
        """One channel by its names; None if no node has it."""
        found = self.topics.get(topic)
        return found.channels.get(channel) if found else None


EMPTY = Cluster(0, 0.0, Totals(), {}, {}, {}, has_lookupds=False)
