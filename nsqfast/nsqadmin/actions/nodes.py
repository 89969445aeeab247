"""What an admin knows of a node, so that it is no problem any more.

POST /ui/nodes/forget       a dead one is not to come back
POST /ui/nodes/acknowledge  it was killed, and what it lost is known
"""

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.actions.order import read_json
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.upstream.errors import UpstreamError

FORM = "application/x-www-form-urlencoded"
# Does it; returns why not, or ''.
Command = Callable[[str], Awaitable[str]]


class _Wanted(msgspec.Struct):
    node: str


class NodeActions:
    """The handlers."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def add_routes(self, app: web.Application) -> None:
        """See the module."""
        app.router.add_post("/ui/nodes/forget", admin_only(self.forget))
        app.router.add_post("/ui/nodes/acknowledge", admin_only(self.acknowledge))

    async def forget(self, request: web.Request) -> web.Response:
        """JSON, or the form of the node's page; 409 says why not."""
        return await self._serve(request, "forget_node", "forgotten", self._forget, "/nodes")

    async def acknowledge(self, request: web.Request) -> web.Response:
        """The same."""
        word = "acknowledge_unclean_start"
        return await self._serve(request, word, "acknowledged", self._acknowledge)

    async def _serve(
        self, request: web.Request, word: str, done: str, command: Command, to: str = ""
    ) -> web.Response:
        is_form = request.content_type == FORM
        given = await request.post() if is_form else None
        node = (
            str(given.get("node", ""))
            if given is not None
            else (await read_json(request, _Wanted)).node
        )
        audit, target = self._context.audit, {"node": node}
        if trouble := await command(node):
            effect: dict[str, object] = {"reason": trouble}
            await audit.note(request, word, target, effect=effect, outcome="refused")
            raise web.HTTPConflict(text=f"Not {done}: {trouble}.")
        await audit.note(request, word, target, outcome="ok")
        self._context.poller.ask_now()
        if is_form:
            urls = self._context.urls
            raise web.HTTPSeeOther(urls.to(to) if to else urls.node(node))
        return web.json_response(target)

    async def _forget(self, node: str) -> str:
        return self._context.poller.members.forget(node)

    async def _acknowledge(self, node: str) -> str:
        # Users must not make us send requests to arbitrary addresses.
        if node not in self._context.poller.cluster.nodes:
            return f"the cluster has no node {node}"
        try:
            await self._context.upstream.post(node, "/unclean_start/acknowledge")
        except UpstreamError as error:
            return error.message or str(error)
        return ""
