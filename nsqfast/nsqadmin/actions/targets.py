"""Targets of actions: one topic or channel, of which nsqd are asked right now, or a set of them as of the last poll."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from aiohttp import web

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.access.users import Role
from nsqfast.nsqadmin.actions.order import ITEMS_MAX, Action, Item, Order
from nsqfast.nsqadmin.cluster.answers import (
    ChannelStats,
    NobodyAnsweredError,
    NsqdStats,
    TopicStats,
    stats_path,
)
from nsqfast.nsqadmin.cluster.client import UpstreamError
from nsqfast.nsqadmin.cluster.discovery import Discovery
from nsqfast.nsqadmin.cluster.model import Channel, Cluster, Counts, NodePart, Topic
from nsqfast.nsqadmin.context import Context

RowsOf = Callable[[str, str, Role], Awaitable[Sequence[Mapping[str, str]]]]
TICK_S_MAX: Final = 15.0
NODES_AT_ONCE: Final = 16
ANSWER_S: Final = 2.0  # somebody waits for the dialog


@dataclass(slots=True)
class Holding:
    """An nsqd's numbers for an item. With an `error` nothing else is known, and is_there is None."""

    node: str
    hostname: str = ""
    is_there: bool | None = None
    memory: int = 0
    disk: int = 0
    in_flight: int = 0
    deferred: int = 0
    clients: int = 0
    paused: bool = False
    error: str = ""

    @property
    def messages(self) -> int:
        return self.memory + self.disk + self.in_flight + self.deferred

    def add(self, counts: Counts | ChannelStats) -> None:
        """Messages that it has as well."""
        self.memory += counts.depth - counts.backend_depth
        self.disk += counts.backend_depth
        self.in_flight += counts.in_flight_count
        self.deferred += counts.deferred_count


@dataclass(slots=True)
class Target:
    """An item, its numbers on each nsqd, and the nsqlookupd to notify."""

    item: Item
    holdings: list[Holding]
    lookupds: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> list[str]:
        """The nsqd that get the commands."""
        return [holding.node for holding in self.holdings]


class Targets:
    """Finds the target of an action on one item, by asking nsqd now."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._upstream = context.upstream
        self._discovery = Discovery(context.options, context.upstream)

    async def find(self, action: Action, item: Item, nodes: Sequence[str] | None) -> Target:
        """Of those `nodes`, or of all that have the item. 404 if there is none; 400 for a node that is not known."""
        cluster = self._context.poller.cluster
        warnings: list[str] = []
        if nodes is not None:
            # Users must not make us send requests to arbitrary addresses.
            for node in nodes:
                if node not in cluster.nodes:
                    raise web.HTTPBadRequest(text=f"The cluster has no node {node}.")
        if action is Action.CREATE:
            return Target(item, _places_to_create(cluster, item, nodes), self._lookupds(action))
        if nodes is None:
            nodes, warnings = await self._candidates(cluster, item)
        holdings = await self.ask(nodes, item, is_whole=action in (Action.DELETE, Action.TOMBSTONE))
        holdings = [holding for holding in holdings if holding.is_there is not False]
        # What only nsqlookupd knows can be deleted there.
        if not holdings and (action is not Action.DELETE or find_item(cluster, item) is None):
            raise web.HTTPNotFound(text=f"No node has the {item.kind} {item.name}.")
        return Target(item, holdings, self._lookupds(action), warnings)

    def _lookupds(self, action: Action) -> list[str]:
        told = action in (Action.CREATE, Action.DELETE, Action.TOMBSTONE)
        return list(self._context.options.nsqlookupd_http_addresses) if told else []

    async def _candidates(self, cluster: Cluster, item: Item) -> tuple[list[str], list[str]]:
        """Nodes that had it at the last poll, down or not, and nodes that report the topic now."""
        known = dict.fromkeys(part.node for part in parts_of(cluster, item))
        if not self._discovery.lookupds:
            return list(known | dict.fromkeys(cluster.nodes)), []
        try:
            found = await self._discovery.producers(item.topic)
        except NobodyAnsweredError as error:
            return list(known), [f"Asked are only nodes that were known before: {error}"]
        return list(known | dict.fromkeys(node.key for node in found.value)), []

    async def ask(self, nodes: Iterable[str], item: Item, *, is_whole: bool) -> list[Holding]:
        """Holdings in the same order. A topic as a whole counts with its channels."""
        slots, known = asyncio.Semaphore(NODES_AT_ONCE), self._context.poller.cluster.nodes
        path = stats_path(item.topic, item.channel)

        async def ask_one(node: str) -> Holding:
            async with slots:
                holding = Holding(node, known[node].hostname if node in known else "")
                try:
                    async with asyncio.timeout(ANSWER_S):
                        stats = await self._upstream.read(node, path, NsqdStats)
                except UpstreamError as error:
                    holding.error = str(error).removeprefix(f"http://{node}{path}: ")
                except TimeoutError:
                    holding.error = f"no answer within {ANSWER_S:g} s"
                else:
                    fill_holding(holding, stats, item, is_whole=is_whole)
                return holding

        return list(await asyncio.gather(*map(ask_one, nodes)))


def _places_to_create(cluster: Cluster, item: Item, nodes: Sequence[str] | None) -> list[Holding]:
    """Where it can be created: on these nodes, or on any."""
    has_topic = {part.node for part in parts_of(cluster, Item(item.topic))}
    return [
        Holding(
            key,
            cluster.nodes[key].hostname,
            is_there=key in has_topic,
            error=cluster.nodes[key].error,
        )
        for key in (cluster.nodes if nodes is None else nodes)
    ]


def fill_holding(holding: Holding, stats: NsqdStats, item: Item, *, is_whole: bool) -> None:
    found: Sequence[TopicStats | ChannelStats] = stats.topics_named(item.topic)
    if item.channel:
        found = stats.channels_named(item.topic, item.channel)
    holding.is_there = bool(found)
    for one in found[:1]:
        holding.paused = one.paused
        if isinstance(one, ChannelStats):
            holding.clients = one.client_count
            holding.add(one)
            return
        holding.memory, holding.disk = one.depth - one.backend_depth, one.backend_depth
        for channel in one.channels or ():
            holding.clients += channel.client_count
            if is_whole:
                holding.add(channel)


def find_item(cluster: Cluster, item: Item) -> Topic | Channel | None:
    """As it was at the last poll; None if nobody knew it."""
    if item.channel:
        return cluster.channel(item.topic, item.channel)
    return cluster.topics.get(item.topic)


def parts_of(cluster: Cluster, item: Item) -> Iterable[NodePart]:
    """Its parts at the last poll."""
    found = find_item(cluster, item)
    return found.parts if found else ()


class TargetSets:
    """Sets of topics or channels for one action: selected rows, or all rows that a page's search finds.

    A confirmed set is identified by its hash. Before anything is done, the set is computed again from a poll that began
    after the confirmation: otherwise an action could affect objects that nobody saw.
    `rows_of` returns the data of all rows of a page's table, LookupError if there is none.
    """

    def __init__(self, context: Context, rows_of: RowsOf) -> None:
        self._context = context
        self._rows_of = rows_of

    async def find(self, order: Order, role: Role) -> list[Target]:
        """The current set, sorted. 400 if it is empty, too large, or contains anything but topics and channels."""
        await self._wait_for_news()
        items = order.items if order.items is not None else await self._read_rows(order, role)
        if not items or not all(item.topic for item in items):
            raise web.HTTPBadRequest(text="Nothing matches: there is nothing to do.")
        if len(set(items)) > ITEMS_MAX:
            raise web.HTTPBadRequest(
                text=f"{len(set(items)):,} match, at most {ITEMS_MAX} can be done in one go: search for fewer."
            )
        return await self._targets(order.action, sorted(set(items)))

    async def _read_rows(self, order: Order, role: Role) -> list[Item]:
        try:
            rows = await self._rows_of(order.view, order.table, role)
        except LookupError:
            raise web.HTTPBadRequest(text="view and table: there is no such table") from None
        return [Item(row.get("topic", ""), row.get("channel", "")) for row in rows]

    async def _wait_for_news(self) -> None:
        poller = self._context.poller
        try:
            async with asyncio.timeout(TICK_S_MAX):
                # The first tick may be of a poll that was already under way.
                for _ in range(2):
                    poller.ask_now()
                    await poller.next_tick()
        except TimeoutError:
            raise web.HTTPServiceUnavailable(
                text="The cluster could not be asked in time: try again."
            ) from None

    async def _targets(self, action: Action, items: Iterable[Item]) -> list[Target]:
        cluster = self._context.poller.cluster
        is_delete = action is Action.DELETE
        lookupds = list(self._context.options.nsqlookupd_http_addresses) if is_delete else []
        slices, targets = Slices(), []
        for item in items:
            targets.append(Target(item, holdings_of(cluster, item, is_whole=is_delete), lookupds))
            await slices.pause()
        return targets


def holdings_of(cluster: Cluster, item: Item, *, is_whole: bool) -> list[Holding]:
    """According to the last poll; a node that does not answer counts with its last numbers."""
    found = {part.node: _holding_at_poll(cluster, part) for part in parts_of(cluster, item)}
    topic = cluster.topics.get(item.topic)
    if item.channel or topic is None:
        return list(found.values())
    for channel in topic.channels.values():
        for part in channel.parts:
            holding = found.get(part.node)
            if holding is None:
                continue
            holding.clients += part.counts.client_count
            if is_whole:
                holding.add(part.counts)
    return list(found.values())


def _holding_at_poll(cluster: Cluster, part: NodePart) -> Holding:
    node = cluster.nodes.get(part.node)
    holding = Holding(
        part.node,
        node.hostname if node else "",
        is_there=True,
        clients=part.counts.client_count,
        paused=part.paused,
        error=node.error if node else "",
    )
    holding.add(part.counts)
    return holding


def hash_of(action: Action, targets: Iterable[Target]) -> str:
    """Of the names and the action only: numbers change all the time."""
    named: list[Any] = [action.value, *([t.item.topic, t.item.channel] for t in targets)]
    return hashlib.sha256(msgspec.json.encode(named)).hexdigest()[:32]
