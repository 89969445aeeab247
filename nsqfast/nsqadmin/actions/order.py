"""What somebody asks to be done, as JSON; wrong requests are refused here with a text that says what to change."""

import re
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from nsqfast.names import NAME_SIZE_MAX, is_valid_name

T = TypeVar("T", bound=msgspec.Struct)

ITEMS_MAX: Final = 500  # topics or channels a go
NODES_MAX: Final = 10_000
_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")
NAME_RULE: Final = (
    f"1 to {NAME_SIZE_MAX} of a-z A-Z 0-9 . _ - with an optional #ephemeral at the end"
)


class Action(StrEnum):
    """What can be done to a topic or a channel."""

    CREATE = "create"
    DELETE = "delete"
    EMPTY = "empty"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    TOMBSTONE = "tombstone"

    @property
    def is_undoable(self) -> bool:
        """It loses nothing, so it needs no question."""
        return self in (Action.PAUSE, Action.UNPAUSE)

    @property
    def wants_name(self) -> bool:
        """Somebody has to type what is to be lost."""
        return self in (Action.DELETE, Action.EMPTY)


OPPOSITE: Final = {Action.PAUSE: Action.UNPAUSE, Action.UNPAUSE: Action.PAUSE}


class Item(msgspec.Struct, frozen=True, order=True):
    """A topic, or a channel of it."""

    topic: str
    channel: str = ""

    @property
    def kind(self) -> str:
        """As NSQ's paths have it."""
        return "channel" if self.channel else "topic"

    @property
    def name(self) -> str:
        """As somebody has to type it."""
        return f"{self.topic}/{self.channel}" if self.channel else self.topic

    @property
    def short_name(self) -> str:
        """Where it is clear which topic is meant."""
        return self.channel or self.topic


class Order(msgspec.Struct):
    """One action on one item, or on many: `items`, or all rows of the table `table` of the page at `view`.

    `nodes` are keys of nsqd, None for all that have it; a tombstone has exactly one. `tell_lookupds` matters to delete
    only: whoever leaves out some nsqd leaves nsqlookupd alone, too. `confirm` is the name, or for many their number.
    `hash` is that of the set which was confirmed. Two orders with the same `id` are one.
    """

    action: Action
    id: str = ""
    topic: str = ""
    channel: str = ""
    nodes: list[str] | None = None
    tell_lookupds: bool = True
    confirm: str = ""
    items: list[Item] | None = None
    view: str = ""
    table: str = ""
    hash: str = ""

    @property
    def item(self) -> Item:
        """The one."""
        return Item(self.topic, self.channel)

    @property
    def is_bulk(self) -> bool:
        """It names a set."""
        return self.items is not None or bool(self.view)


async def read_json(request: web.Request, kind: type[T]) -> T:
    """400 for anything else."""
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"The body is not what was expected: {error}") from None


async def read_order(request: web.Request) -> Order:
    """400 says what is wrong."""
    order = await read_json(request, Order)
    check_order(order)
    return order


def check_order(order: Order) -> None:
    """As read_order."""
    if order.id and not _ID.fullmatch(order.id):
        raise web.HTTPBadRequest(text="id has to be 8 to 64 of a-z A-Z 0-9 _ -")
    if order.nodes is not None and len(order.nodes) > NODES_MAX:
        raise web.HTTPBadRequest(text=f"nodes: at most {NODES_MAX:,}")
    if order.is_bulk:
        if order.action in (Action.CREATE, Action.TOMBSTONE) or order.nodes is not None:
            raise web.HTTPBadRequest(text=f"{order.action} is done one by one")
        return
    if not order.topic and order.action is not Action.CREATE:
        raise web.HTTPBadRequest(text="topic is missing")
    if order.action is Action.TOMBSTONE and (order.channel or len(order.nodes or ()) != 1):
        raise web.HTTPBadRequest(
            text="A tombstone is for one topic on one node: give nodes: [NODE]"
        )


def check_name(name: str, kind: str) -> None:
    """400 with the rule."""
    if not is_valid_name(name):
        raise web.HTTPBadRequest(text=f"A {kind}'s name has {NAME_RULE}.")
