"""POST /ui/deferred: deliver one deferred message now, or drop it."""

import re
from typing import Literal
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.live.model import Node
from nsqfast.nsqadmin.messages.page import json_answer
from nsqfast.nsqadmin.results import Result, outcome_of
from nsqfast.nsqadmin.upstream.errors import UpstreamError

ID = re.compile(r"[0-9a-f]{16}")
BODY_SIZE_MAX = 4096


class Change(msgspec.Struct):
    """The body of the request; `action` is "run" or "cancel"."""

    topic: str
    channel: str
    node: str
    id: str
    action: Literal["run", "cancel"]


class DeferredHandlers:
    """The handlers of one nsqadmin."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def change(self, request: web.Request) -> web.Response:
        """200 with `results` on success; otherwise 502 with the same, and `message`."""
        wanted = await _read(request)
        result = await self._tell(self._node_of(wanted), wanted)
        target = {"topic": wanted.topic, "channel": wanted.channel, "node": wanted.node}
        await self._context.audit.note(
            request,
            f"{wanted.action}_deferred",
            target,
            effect={"id": wanted.id},
            results=[result],
            outcome=outcome_of([result]),
        )
        answer = {"results": [result]}
        if result.ok:
            self._context.poller.ask_now()
            return json_answer(answer)
        return json_answer({"message": result.text, **answer}, 502)

    def _node_of(self, wanted: Change) -> Node:
        """A node that has the channel: users must not make us send requests to other places."""
        cluster = self._context.poller.cluster
        channel = cluster.channel(wanted.topic, wanted.channel)
        known = {part.node for part in channel.parts} if channel else set()
        if wanted.node not in known or wanted.node not in cluster.nodes:
            raise web.HTTPNotFound(text="no such channel on this node")
        return cluster.nodes[wanted.node]

    async def _tell(self, node: Node, wanted: Change) -> Result:
        given = {"topic": wanted.topic, "channel": wanted.channel, "id": wanted.id}
        target = f"/channel/deferred/{wanted.action}?{urlencode(given)}"
        try:
            await self._context.upstream.post(node.key, target)
        except UpstreamError as error:
            return Result(node.key, ok=False, text=_explain(node, error))
        return Result(node.key, ok=True)


def _explain(node: Node, error: UpstreamError) -> str:
    if "MESSAGE_NOT_FOUND" in error.message:
        return "it is not deferred any more"
    if error.status == 404 and "CHANNEL_NOT_FOUND" not in error.message:
        return f"nsqd {node.version} on {node.hostname or node.key} cannot do this"
    return error.message


async def _read(request: web.Request) -> Change:
    body = await request.content.read(BODY_SIZE_MAX)
    try:
        wanted = msgspec.json.decode(body, type=Change)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise web.HTTPBadRequest(text=str(error)) from None
    if not ID.fullmatch(wanted.id):
        raise web.HTTPBadRequest(text="id has to be the 16 hexadecimal digits of a message")
    return wanted
