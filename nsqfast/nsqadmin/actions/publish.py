"""POST /ui/publish: a test message, once or more often, to one nsqd, within the limits of that nsqd."""

import base64
import binascii
import contextlib
from typing import Final
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.actions.order import Action, Item, check_name, decode_json, read_limited
from nsqfast.nsqadmin.actions.targets import Targets
from nsqfast.nsqadmin.cluster.client import UpstreamError, cause_of
from nsqfast.nsqadmin.cluster.model import NodeState
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.results import Result, outcome_of

COUNT_MAX: Final = 1000
REQUEST_SIZE_MAX: Final = 32 << 20


class Publication(msgspec.Struct):
    """`body` is text, unless `is_base64`. Without a node: one that has the topic, or any that is up."""

    topic: str
    body: str
    is_base64: bool = False
    count: int = 1
    defer_ms: int = 0
    node: str = ""


class Publish:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._targets = Targets(context)

    async def serve(self, request: web.Request) -> web.Response:
        """Returns how many were sent, and nsqd's answer to the refused one."""
        given = await _read(request)
        body = _body_of(given)
        node = given.node or await self._choose(given.topic)
        if node not in self._context.poller.cluster.nodes:
            raise web.HTTPBadRequest(text=f"The cluster has no node {node}.")
        sent, error = await self._send(given, body, node)
        result = Result(node, ok=error is None, text=cause_of(error, "") if error else "")
        outcome = "partial" if error is not None and sent else outcome_of([result])
        await self._context.audit.note(
            request,
            "publish",
            {"topic": given.topic, "node": node},
            effect={
                "size": len(body),
                "count": given.count,
                "sent": sent,
                "defer_ms": given.defer_ms,
            },
            results=[result],
            outcome=outcome,
        )
        self._context.poller.ask_now()
        told = {"sent": sent, "count": given.count, "node": node, "text": result.text}
        return web.json_response({**told, "outcome": outcome}, status=_status(error))

    async def _send(
        self, given: Publication, body: bytes, node: str
    ) -> tuple[int, UpstreamError | None]:
        query = {"topic": given.topic} | ({"defer": str(given.defer_ms)} if given.defer_ms else {})
        target = f"/pub?{urlencode(query)}"
        # One after the other, so that they arrive in order and stop at the first refusal.
        for number in range(given.count):
            try:
                await self._context.upstream.post(node, target, body)
            except UpstreamError as error:
                return number, error
        return given.count, None

    async def _choose(self, topic: str) -> str:
        nodes = self._context.poller.cluster.nodes
        having = []
        with contextlib.suppress(web.HTTPNotFound):
            target = await self._targets.find(Action.PAUSE, Item(topic), None)
            having = [holding.node for holding in target.holdings if not holding.error]
        up = [key for key, node in nodes.items() if node.state is NodeState.UP]
        for key in (*having, *up):
            if key in nodes:
                return key
        raise web.HTTPServiceUnavailable(text="No nsqd is up.")


async def _read(request: web.Request) -> Publication:
    # Larger than the server's limit for other requests: nsqd decides what is too large.
    refusal = f"Not sent: larger than {REQUEST_SIZE_MAX >> 20} MiB."
    given = decode_json(await read_limited(request, REQUEST_SIZE_MAX, refusal), Publication)
    check_name(given.topic, "topic")
    if not 1 <= given.count <= COUNT_MAX:
        raise web.HTTPBadRequest(text=f"count has to be 1 to {COUNT_MAX}")
    if given.defer_ms < 0:
        raise web.HTTPBadRequest(text="defer_ms cannot be negative")
    return given


def _body_of(given: Publication) -> bytes:
    if not given.is_base64:
        return given.body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(given.body, validate=True)
    except (binascii.Error, ValueError):
        raise web.HTTPBadRequest(text="body is not base64") from None


def _status(error: UpstreamError | None) -> int:
    if error is None:
        return 200
    # If nsqd refuses it, the sender has to change it.
    return error.status if 400 <= error.status < 500 else 502
