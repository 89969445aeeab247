"""Requested actions, as JSON; invalid requests are refused here with a text that says what to change."""

import re
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.origin import FORM
from nsqfast.wire.names import NAME_SIZE_MAX, is_valid_name

T = TypeVar("T", bound=msgspec.Struct)

ITEMS_MAX: Final = 500  # topics or channels per action
NODES_MAX: Final = 10_000
_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")
NAME_RULE: Final = (
    f"1 to {NAME_SIZE_MAX} of a-z A-Z 0-9 . _ - with an optional #ephemeral at the end"
)


class Action(StrEnum):
    CREATE = "create"
    DELETE = "delete"
    EMPTY = "empty"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    TOMBSTONE = "tombstone"

    @property
    def wants_name(self) -> bool:
        """The user has to type the name of what is lost."""
        return self in (Action.DELETE, Action.EMPTY)


# Of actions that lose nothing, and so need no question and can be undone.
OPPOSITE: Final = {Action.PAUSE: Action.UNPAUSE, Action.UNPAUSE: Action.PAUSE}


class Item(msgspec.Struct, frozen=True, order=True):
    """A topic, or a channel of it."""

    topic: str
    channel: str = ""

    @property
    def kind(self) -> str:
        return "channel" if self.channel else "topic"

    @property
    def name(self) -> str:
        """The name that the user has to type."""
        return f"{self.topic}/{self.channel}" if self.channel else self.topic


class Order(msgspec.Struct):
    """One action on one item, or on many: `items`, or all rows of the table `table` of the page at `view`.

    `nodes` are keys of nsqd, None for all that have it; a tombstone has exactly one. `tell_lookupds` matters only for
    delete, which does not touch nsqlookupd if it leaves out some nsqd. `confirm` is the name, or for many items their
    number. `hash` is that of the confirmed set. Two orders with the same `id` are one.
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
        """The only item of an order that names no set."""
        return Item(self.topic, self.channel)

    @property
    def is_bulk(self) -> bool:
        return self.items is not None or bool(self.view)


async def read_json(request: web.Request, kind: type[T]) -> T:
    """The JSON of a request's body; 400 says what is wrong with it."""
    return decode_json(await request.read(), kind)


def decode_json(body: bytes, kind: type[T]) -> T:
    """400 says what is wrong with it."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:  # of msgspec, and for what is not UTF-8
        raise web.HTTPBadRequest(text=f"The body is not what was expected: {error}") from None


async def read_body(request: web.Request, kind: type[T]) -> T:
    """JSON, or the form of a page without scripts, where a number is a text."""
    if request.content_type != FORM:
        return await read_json(request, kind)
    given = {name: str(value) for name, value in (await request.post()).items()}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise web.HTTPBadRequest(text=f"The form is not what was expected: {error}") from None


async def read_limited(request: web.Request, size_max: int, refusal: str) -> bytes:
    """The whole body; 413 with this text if it is larger."""
    body = bytearray()
    while len(body) <= size_max:
        piece = await request.content.read(size_max + 1 - len(body))
        if not piece:
            break
        body += piece
    if len(body) > size_max:
        raise web.HTTPRequestEntityTooLarge(size_max, len(body), text=refusal)
    return bytes(body)


async def read_order(request: web.Request) -> Order:
    """400 says what is wrong."""
    order = await read_json(request, Order)
    check_order(order)
    return order


def check_order(order: Order) -> None:
    """400 says what contradicts itself in an order."""
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


def audit_word(action: Action, item: Item) -> str:
    """NSQ's name of the action, as its webhook knows it."""
    return "tombstone_topic_producer" if action is Action.TOMBSTONE else f"{action}_{item.kind}"


def check_name(name: str, kind: str) -> None:
    """400 with the rule for names that it breaks."""
    if not is_valid_name(name):
        raise web.HTTPBadRequest(text=f"A {kind}'s name has {NAME_RULE}.")
