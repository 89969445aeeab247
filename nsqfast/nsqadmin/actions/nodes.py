"""What an admin does with a node (docs/ADMIN.md), and the end of a consumer's connection: others get what it holds."""

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.origin import FORM
from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.actions.order import read_body, read_json
from nsqfast.nsqadmin.cluster.answers import UpstreamError
from nsqfast.nsqadmin.cluster.client import ADDRESS, ADDRESS_SIZE_MAX
from nsqfast.nsqadmin.cluster.model import Node
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.results import Result

REASONS = {
    "INVALID_ARG_FROM": "it was started anew since then: look again",
    "CLIENT_NOT_FOUND": "it is not connected any more",
    "REDRIVE_RUNNING": "a redrive of this channel is running there",
    "NO_REDRIVE": "no redrive is running there",
    "NO_DEAD_LETTERS": "it has no dead letters of this channel",
    "MISSING_ARG_FROM": "they wait in several channels there: say in which",
    "DRAIN_NOT_ALLOWED": "it allows no drain here; it has to be started with --http-drain",
    "ADMIN_ADDRESS_ONLY": "it takes this at its --http-admin-address only",
    "INVALID_DEADLINE": "the deadline has to be a duration, for example 30m",
}


class Disconnect(msgspec.Struct):
    """The body; `node` is its key, `address` the consumer's, as the node shows it."""

    topic: str
    channel: str
    node: str
    address: str


class NodeOrder(msgspec.Struct):
    """The body; a drain has the rest, too: `deadline` is a duration, '' for none, and `confirm` the node once more."""

    node: str
    deadline: str = ""
    confirm: str = ""


# Does it; returns why not, or ''.
Command = Callable[[NodeOrder], Awaitable[str]]


class NodeActions:
    """The handlers: JSON, or the form of the node's page; 409 says why not."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/ui/clients/disconnect", admin_only(self.disconnect))
        acknowledge = partial(self._tell, "/unclean_start/acknowledge")
        commands: tuple[tuple[str, str, str, Command], ...] = (
            ("forget", "forget_node", "forgotten", self._forget),
            ("acknowledge", "acknowledge_unclean_start", "acknowledged", acknowledge),
            ("drain", "drain_node", "begun", self._drain),
            ("drain/cancel", "cancel_drain", "cancelled", partial(self._tell, "/drain/cancel")),
        )
        for path, word, done, command in commands:
            handler = partial(self._serve, word, done, command)
            router.add_post(f"/ui/nodes/{path}", admin_only(handler))

    async def _serve(
        self, word: str, done: str, command: Command, request: web.Request
    ) -> web.Response:
        wanted = await read_body(request, NodeOrder)
        audit, target = self._context.audit, {"node": wanted.node}
        if trouble := await command(wanted):
            await audit.note(request, word, target, effect={"reason": trouble}, outcome="refused")
            raise web.HTTPConflict(text=f"Not {done}: {trouble}.")
        effect = {"deadline": wanted.deadline} if wanted.deadline else {}
        await audit.note(request, word, target, effect=effect)
        self._context.poller.ask_now()
        if request.content_type == FORM:
            urls = self._context.urls
            is_gone = wanted.node not in self._context.poller.members.nodes
            raise web.HTTPSeeOther(urls.to("/nodes") if is_gone else urls.node(wanted.node))
        return web.json_response(target)

    async def _forget(self, wanted: NodeOrder) -> str:
        return self._context.poller.members.forget(wanted.node)

    async def _drain(self, wanted: NodeOrder) -> str:
        if wanted.confirm != wanted.node:
            return f"confirm has to be {wanted.node}"
        query = f"?{urlencode({'deadline': wanted.deadline})}" if wanted.deadline else ""
        return await self._tell(f"/drain{query}", wanted)

    async def _tell(self, path: str, wanted: NodeOrder) -> str:
        # Users must not make us send requests to arbitrary addresses.
        node = self._context.poller.cluster.nodes.get(wanted.node)
        if node is None:
            return f"the cluster has no node {wanted.node}"
        try:
            await self._context.upstream.post(wanted.node, path)
        except UpstreamError as error:
            return explain_refusal(node, error)
        return ""

    async def disconnect(self, request: web.Request) -> web.Response:
        """End a consumer's connection: 200 with `results`; 502 with the same, and `message`, if its node refuses."""
        wanted = await read_json(request, Disconnect)
        if len(wanted.address) > ADDRESS_SIZE_MAX or not ADDRESS.fullmatch(wanted.address):
            raise web.HTTPBadRequest(text="address has to be HOST:PORT of a consumer")
        node = self._node_of(wanted)
        path = f"/client/disconnect?{urlencode({'address': wanted.address})}"
        try:
            await self._context.upstream.post(node.key, path)
            result = Result(node.key, ok=True)
        except UpstreamError as error:
            result = Result(node.key, ok=False, text=explain_refusal(node, error))
        await self._context.audit.note(
            request,
            "disconnect_client",
            {"topic": wanted.topic, "channel": wanted.channel, "node": wanted.node},
            effect={"address": wanted.address},
            results=[result],
        )
        answer: dict[str, object] = {"results": [msgspec.to_builtins(result)]}
        if result.ok:
            self._context.poller.ask_now()
            return web.json_response(answer)
        return web.json_response({"message": result.text, **answer}, status=502)

    def _node_of(self, wanted: Disconnect) -> Node:
        """A node that has the channel: users must not make us send requests to other places."""
        known = self._context.poller.cluster.channel_nodes(wanted.topic, wanted.channel)
        if wanted.node not in known:
            raise web.HTTPNotFound(text="no such channel on this node")
        return known[wanted.node]


def explain_refusal(node: Node, error: UpstreamError) -> str:
    """Why a node did not do what it was told, for a person."""
    for code, text in REASONS.items():
        if code in error.message:
            return text
    if error.status == 404 and "CHANNEL_NOT_FOUND" not in error.message:
        return f"nsqd {node.version} on {node.hostname or node.key} cannot do this"
    return error.message
