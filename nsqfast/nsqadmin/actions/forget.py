"""POST /ui/nodes/forget: a dead node is not to come back, so it is no problem any more."""

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.actions.order import read_json
from nsqfast.nsqadmin.context import Context

FORM = "application/x-www-form-urlencoded"


class _Wanted(msgspec.Struct):
    node: str


class Forget:
    """The handler."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def add_routes(self, app: web.Application) -> None:
        """See the module."""
        app.router.add_post("/ui/nodes/forget", admin_only(self.serve))

    async def serve(self, request: web.Request) -> web.Response:
        """JSON, or the form of the node's page; 409 says why not."""
        if request.content_type == FORM:
            await self._forget(request, str((await request.post()).get("node", "")))
            raise web.HTTPSeeOther(self._context.urls.to("/nodes"))
        wanted = await read_json(request, _Wanted)
        await self._forget(request, wanted.node)
        return web.json_response({"node": wanted.node})

    async def _forget(self, request: web.Request, node: str) -> None:
        poller, audit = self._context.poller, self._context.audit
        target = {"node": node}
        if trouble := poller.members.forget(node):
            effect: dict[str, object] = {"reason": trouble}
            await audit.note(request, "forget_node", target, effect=effect, outcome="refused")
            raise web.HTTPConflict(text=f"Not forgotten: {trouble}.")
        await audit.note(request, "forget_node", target, outcome="ok")
        poller.ask_now()
