"""What an admin does with a node.

POST /ui/nodes/forget        a dead one is not to come back: it is no problem any more
POST /ui/nodes/acknowledge   it was killed, and what it lost is known: that is none, either
POST /ui/nodes/drain         it takes no messages any more, and stops when the others are delivered
POST /ui/nodes/drain/cancel  it takes messages again
"""

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.access.sameorigin import FORM
from nsqfast.nsqadmin.actions.node_commands import explain
from nsqfast.nsqadmin.actions.order import read_body
from nsqfast.nsqadmin.cluster.answers import UpstreamError
from nsqfast.nsqadmin.context import Context


class Wanted(msgspec.Struct):
    """The body; a drain has the rest, too: `deadline` is a duration, '' for none, and `confirm` the node once more."""

    node: str
    deadline: str = ""
    confirm: str = ""


# Does it; returns why not, or ''.
Command = Callable[[Wanted], Awaitable[str]]


class NodeActions:
    """The handlers: JSON, or the form of the node's page; 409 says why not."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def add_routes(self, app: web.Application) -> None:
        """See the module."""
        for path, word, done, command in (
            ("forget", "forget_node", "forgotten", self._forget),
            ("acknowledge", "acknowledge_unclean_start", "acknowledged", self._acknowledge),
            ("drain", "drain_node", "begun", self._drain),
            ("drain/cancel", "cancel_drain", "cancelled", self._cancel_drain),
        ):
            handler = partial(self._serve, word, done, command)
            app.router.add_post(f"/ui/nodes/{path}", admin_only(handler))

    async def _serve(
        self, word: str, done: str, command: Command, request: web.Request
    ) -> web.Response:
        wanted = await read_body(request, Wanted)
        audit, target = self._context.audit, {"node": wanted.node}
        given: dict[str, object] = {"deadline": wanted.deadline} if wanted.deadline else {}
        if trouble := await command(wanted):
            effect: dict[str, object] = {"reason": trouble}
            await audit.note(request, word, target, effect=effect, outcome="refused")
            raise web.HTTPConflict(text=f"Not {done}: {trouble}.")
        await audit.note(request, word, target, effect=given, outcome="ok")
        self._context.poller.ask_now()
        if request.content_type == FORM:
            urls = self._context.urls
            is_gone = wanted.node not in self._context.poller.members.nodes
            raise web.HTTPSeeOther(urls.to("/nodes") if is_gone else urls.node(wanted.node))
        return web.json_response(target)

    async def _forget(self, wanted: Wanted) -> str:
        return self._context.poller.members.forget(wanted.node)

    async def _acknowledge(self, wanted: Wanted) -> str:
        return await self._tell(wanted.node, "/unclean_start/acknowledge")

    async def _drain(self, wanted: Wanted) -> str:
        if wanted.confirm != wanted.node:
            return f"confirm has to be {wanted.node}"
        query = f"?{urlencode({'deadline': wanted.deadline})}" if wanted.deadline else ""
        return await self._tell(wanted.node, f"/drain{query}")

    async def _cancel_drain(self, wanted: Wanted) -> str:
        return await self._tell(wanted.node, "/drain/cancel")

    async def _tell(self, key: str, path: str) -> str:
        # Users must not make us send requests to arbitrary addresses.
        node = self._context.poller.cluster.nodes.get(key)
        if node is None:
            return f"the cluster has no node {key}"
        try:
            await self._context.upstream.post(key, path)
        except UpstreamError as error:
            return explain(node, error)
        return ""
