"""Sets of topics or channels for one action: selected rows, or all rows that a page's search finds.

A confirmed set is identified by its hash. Before anything is done, the set is computed again from a poll that began
after the confirmation: otherwise an action could affect objects that nobody saw.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.roles import Role
from nsqfast.nsqadmin.actions.effect import HAPPENS, VERBS, loses
from nsqfast.nsqadmin.actions.order import ITEMS_MAX, Action, Item, Order
from nsqfast.nsqadmin.actions.targets import Holding, Target, parts_of
from nsqfast.nsqadmin.cluster.model import Cluster, NodePart
from nsqfast.nsqadmin.context import Context

RowsOf = Callable[[str, str, Role], Awaitable[Sequence[Mapping[str, str]]]]
SLICE: Final = 5  # topics; each may be on a hundred nodes
TICK_S_MAX: Final = 15.0


class Matching:
    """Finds sets; `rows_of` returns the data of all rows of a page's table, LookupError if there is none."""

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
        targets = []
        for number, item in enumerate(items, 1):
            targets.append(Target(item, holdings_of(cluster, item, is_whole=is_delete), lookupds))
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return targets


def holdings_of(cluster: Cluster, item: Item, *, is_whole: bool) -> list[Holding]:
    """According to the last poll; a node that does not answer counts with its last numbers."""
    found = {part.node: _holding(cluster, part) for part in parts_of(cluster, item)}
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
                _add(holding, part)
    return list(found.values())


def _holding(cluster: Cluster, part: NodePart) -> Holding:
    node = cluster.nodes.get(part.node)
    holding = Holding(
        part.node,
        node.hostname if node else "",
        is_there=True,
        clients=part.counts.client_count,
        paused=part.paused,
        error=node.error if node else "",
    )
    _add(holding, part)
    return holding


def _add(holding: Holding, part: NodePart) -> None:
    holding.memory += part.counts.memory_depth
    holding.disk += part.counts.backend_depth
    holding.in_flight += part.counts.in_flight_count
    holding.deferred += part.counts.deferred_count


class Row(msgspec.Struct):
    """A line of the dialog."""

    topic: str
    channel: str
    messages: int
    clients: int
    nodes: int


class BulkEffect(msgspec.Struct):
    """Like effect.Effect, for a set."""

    id: str
    action: Action
    title: str
    button: str
    lines: Sequence[str]
    confirm: str
    loses: bool
    items: list[Row]
    nodes_down: list[str]
    lookupds: list[str]
    hash: str


async def bulk_effect(action: Action, targets: Sequence[Target], order_id: str) -> BulkEffect:
    """The dialog's content for a set."""
    kind = targets[-1].item.kind
    what = words_of(targets)
    rows: list[Row] = []
    down: set[str] = set()
    for number, target in enumerate(targets, 1):
        rows.append(_row(target))
        down.update(holding.node for holding in target.holdings if holding.error)
        if number % SLICE == 0:
            await asyncio.sleep(0)
    return BulkEffect(
        id=order_id,
        action=action,
        title=f"{VERBS[action]} {what}",
        button=f"{VERBS[action]} {what}",
        lines=HAPPENS[action, kind],
        confirm=str(len(targets)) if action.wants_name else "",
        loses=loses(action),
        items=rows,
        nodes_down=sorted(down),
        lookupds=list(targets[0].lookupds),
        hash=hash_of(action, targets),
    )


def words_of(targets: Sequence[Target]) -> str:
    """For example: 3 topics, 1 channel, 4 topics and channels."""
    kinds = sorted({target.item.kind for target in targets}, reverse=True)
    plural = " and ".join(f"{kind}s" for kind in kinds)
    return f"{len(targets):,} {kinds[0] if len(targets) == 1 else plural}"


def _row(target: Target) -> Row:
    holdings = target.holdings
    return Row(
        topic=target.item.topic,
        channel=target.item.channel,
        messages=sum(holding.messages for holding in holdings),
        clients=sum(holding.clients for holding in holdings),
        nodes=len(holdings),
    )


def hash_of(action: Action, targets: Iterable[Target]) -> str:
    """Of the names and the action only: numbers change all the time."""
    named: list[Any] = [action.value, *([t.item.topic, t.item.channel] for t in targets)]
    return hashlib.sha256(msgspec.json.encode(named)).hexdigest()[:32]
