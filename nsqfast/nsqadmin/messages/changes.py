"""Requeue, drop, copy or move messages of a channel: those that were picked on a page, or all that a search finds.

nsqd examines a part of a queue in each request (docs/PEEK.md), and is asked for one after the other until nothing is
left, also when the page is closed.
"""

import asyncio
import datetime as dt
import re
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.access.users import user_of
from nsqfast.nsqadmin.actions.jobs import end_tasks, new_id
from nsqfast.nsqadmin.actions.nodes import explain_refusal
from nsqfast.nsqadmin.actions.order import check_name, read_json
from nsqfast.nsqadmin.cluster.answers import UpstreamError, decode
from nsqfast.nsqadmin.cluster.model import Node
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.messages.peek import FILTER_SIZE_MAX, PLACE, read_since, write_since
from nsqfast.nsqadmin.results import Result, outcome_of

# nsqd's limit.
IDS_MAX: Final = 100
RUNNING_MAX: Final = 8
KEPT_MAX: Final = 100
ID: Final = re.compile(r"[0-9a-f]{16}")


class Picked(msgspec.Struct):
    """What was picked on a node, from a page that began at `place`; without ids it is what the search finds there."""

    node: str
    ids: list[str] = []
    place: str = ""


class ChangeOrder(msgspec.Struct):
    """The body of a POST. `filter` None: only those with the ids; `to` is the topic for copies, `since` in ISO 8601."""

    action: Literal["requeue", "drop", "copy", "move"]
    topic: str
    channel: str
    state: Literal["ready", "in_flight", "deferred"]
    nodes: list[Picked]
    filter: str | None = None
    since: str = ""
    to: str = ""

    def path(self, picked: Picked, place: str) -> str:
        """What nsqd is asked for, from that place on."""
        given = {"topic": self.topic, "channel": self.channel, "state": self.state, "to": self.to}
        given |= {"id": ",".join(picked.ids), "from": place}
        given |= {"since": str(read_since(self.since) or "")}
        given = {name: value for name, value in given.items() if value}
        if self.filter is not None:
            given["filter"] = self.filter
        return f"/channel/messages/{self.action}?{urlencode(given)}"


class ChangeReply(msgspec.Struct):
    """nsqd's answer to one request for a part of a change."""

    examined: int = 0
    changed: int = 0
    next: str | None = None
    note: str | None = None


@dataclass(slots=True, eq=False)
class Change:
    """One that runs, or did."""

    id: str
    wanted: ChangeOrder
    begun_s: float
    examined: int = 0
    changed: int = 0
    seconds: float = 0.0
    is_running: bool = True
    is_stopped: bool = False
    results: list[Result] = field(default_factory=list)  # of each node, failed until it is done

    def to_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "action": self.wanted.action,
            "is_running": self.is_running,
            "is_stopped": self.is_stopped,
            "examined": self.examined,
            "changed": self.changed,
            "seconds": time.monotonic() - self.begun_s if self.is_running else self.seconds,
            "outcome": outcome_of(self.results),
            "results": msgspec.to_builtins(self.results),
        }


class Changes:
    """Those of one nsqadmin; nobody sees another user's."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: OrderedDict[tuple[str, str], Change] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/ui/messages/changes", admin_only(self.begin))
        app.router.add_get("/ui/messages/changes/{id}", admin_only(self.show))
        app.router.add_post("/ui/messages/changes/{id}/stop", admin_only(self.stop))
        app.on_shutdown.append(self._close)

    async def begin(self, request: web.Request) -> web.Response:
        wanted = await read_json(request, ChangeOrder)
        nodes = self._check(wanted)
        if len(self._tasks) >= RUNNING_MAX:
            raise web.HTTPServiceUnavailable(text=f"{RUNNING_MAX} changes are under way: wait.")
        change = Change(new_id(), wanted, time.monotonic())
        change.results = [Result(node.key, ok=False, text="it did not end") for node in nodes]
        self._known[user_of(request).name, change.id] = change
        while len(self._known) > KEPT_MAX:
            self._known.popitem(False)
        task = asyncio.get_running_loop().create_task(self._run(request, change, nodes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return web.json_response(change.to_json(), status=202)

    async def show(self, request: web.Request) -> web.Response:
        return web.json_response(self._find(request).to_json())

    async def stop(self, request: web.Request) -> web.Response:
        """Serve a stop: no further part is begun."""
        change = self._find(request)
        change.is_stopped = True
        return web.json_response(change.to_json())

    def _find(self, request: web.Request) -> Change:
        change = self._known.get((user_of(request).name, request.match_info["id"]))
        if change is None:
            raise web.HTTPNotFound(text="That was too long ago.")
        return change

    def _check(self, wanted: ChangeOrder) -> list[Node]:
        """The nodes: users must not make us send requests to other places."""
        copies = wanted.action in ("copy", "move")
        if copies:
            check_name(wanted.to, "topic")
        elif wanted.to:
            raise web.HTTPBadRequest(text="Only a copy goes to a topic.")
        if len((wanted.filter or "").encode()) > FILTER_SIZE_MAX:
            raise web.HTTPBadRequest(text=f"A search has at most {FILTER_SIZE_MAX} bytes.")
        if wanted.since and not read_since(wanted.since):
            raise web.HTTPBadRequest(text="That is no time.")
        for picked in wanted.nodes:
            if len(picked.ids) > IDS_MAX or not all(map(ID.fullmatch, picked.ids)):
                raise web.HTTPBadRequest(text="An id has 16 hexadecimal digits.")
            if picked.place and not PLACE.fullmatch(picked.place):
                raise web.HTTPBadRequest(text="place has to be one that nsqd has told")
            if not picked.ids and wanted.filter is None:
                raise web.HTTPBadRequest(text="Pick a message, or say what to search for.")
        known = self._context.poller.cluster.channel_nodes(wanted.topic, wanted.channel)
        names = [picked.node for picked in wanted.nodes]
        if not names or len(set(names)) < len(names) or not set(names) <= known.keys():
            raise web.HTTPNotFound(text="no such channel on this node")
        return [known[name] for name in names]

    async def _run(self, request: web.Request, change: Change, nodes: list[Node]) -> None:
        try:
            pairs = zip(nodes, change.wanted.nodes, strict=True)
            results = await asyncio.gather(*(self._tell(change, *pair) for pair in pairs))
            change.results = list(results)
        finally:
            change.is_running, change.seconds = False, time.monotonic() - change.begun_s
            await self._note(request, change)
            self._context.poller.ask_now()

    async def _tell(self, change: Change, node: Node, picked: Picked) -> Result:
        wanted, changed, place = change.wanted, 0, picked.place
        takes = wanted.action in ("drop", "move")
        while True:
            if takes:  # they were not consumed: charts must not count them
                self._context.poller.note_emptied(wanted.topic, wanted.channel, node.key)
            try:
                body = await self._context.upstream.post(node.key, wanted.path(picked, place))
                part = decode(body, ChangeReply)
            except UpstreamError as error:
                return Result(node.key, ok=False, text=explain_refusal(node, error))
            finally:
                if takes:
                    self._context.poller.note_emptied(wanted.topic, wanted.channel, node.key)
            change.examined += part.examined
            change.changed += part.changed
            changed, place = changed + part.changed, part.next or ""
            if part.note:
                return Result(node.key, ok=False, text=part.note)
            if not place or change.is_stopped or (picked.ids and wanted.filter is None):
                break
        gone = len(picked.ids) - changed if wanted.filter is None else 0
        if gone > 0:
            return Result(node.key, ok=False, text=f"{gone} of them are not there any more")
        return Result(node.key, ok=True)

    async def _note(self, request: web.Request, change: Change) -> None:
        wanted = change.wanted
        target = {"topic": wanted.topic, "channel": wanted.channel}
        if len(wanted.nodes) == 1:
            target["node"] = wanted.nodes[0].node
        is_search, picked = wanted.filter is not None, sum(len(each.ids) for each in wanted.nodes)
        given = {
            "state": wanted.state,
            "messages": change.changed,
            "picked": None if is_search else picked,
            "filter": wanted.filter,
            "examined": change.examined if is_search else None,
            "since": write_since(read_since(wanted.since), dt.UTC) or None,
            "to": wanted.to or None,
            "messages_lost": change.changed if wanted.action == "drop" else None,
            "is_stopped": change.is_stopped or None,
        }
        effect = {name: value for name, value in given.items() if value is not None}
        note, action = self._context.audit.note, f"{wanted.action}_messages"
        await note(request, action, target, effect=effect, results=change.results)

    async def _close(self, _app: web.Application) -> None:
        """nsqadmin stops: finish the parts under way."""
        for change in self._known.values():
            change.is_stopped = True
        await end_tasks(self._tasks)
