"""POST /ui/tail: new messages of a topic as they arrive, over an ephemeral channel that ends with the answer.

It is a POST because it changes the cluster by creating a channel. The answer is `text/event-stream`
(https://html.spec.whatwg.org/multipage/server-sent-events.html): `message`, once a second `status`, and `end`.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from nsqfast.client import Config, Consumer, Message
from nsqfast.errors import NsqfastError
from nsqfast.nsqadmin.actions.order import read_json
from nsqfast.nsqadmin.cluster.answers import NsqdStats, UpstreamError, stats_path
from nsqfast.nsqadmin.cluster.client import trouble_of
from nsqfast.nsqadmin.cluster.model import Node, NodeState
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.messages.bodies import Body, Kind, Masks, show_body
from nsqfast.nsqadmin.messages.peek import NODES_AT_ONCE
from nsqfast.nsqadmin.results import Result, outcome_of
from nsqfast.wire.gotext import join_host_port

TAILS_MAX = 4
TIME_MAX_S = 300.0
SHOWN_PER_S = 100
# nsqd keeps up to --mem-queue-size for the tail and drops the rest; it never slows down other channels.
IN_FLIGHT_MAX = 100
TAKEN_PER_S = 2000
WAIT_S = 0.25
STATUS_S = 1.0
PIECE_SIZE_MAX = 4096
MASKED_SIZE_MAX = 16384  # of bodies searched for hidden keys: 2 ms
PREFIX = "nsqadmin-"
NO_CHANNEL = (
    "the topic has no channel there, so it keeps its messages for the first that comes, "
    "and a tail would take them away"
)
WANTED = {
    "TLS required": "nsqd wants TLS, with which a tail comes if --http-client-tls-root-ca-file is given",
    "TLS is asked for": "nsqd has no TLS, for which --http-client-tls-... asks",
    "E_AUTH_FIRST": "nsqd wants AUTH, for which --auth-secret-file has the secret; it is told by TLS only",
}
HEADERS = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}


class TailOrder(msgspec.Struct):
    """The body of the request; `view` is that of the page."""

    topic: str
    view: str = "json"


class Tailed(msgspec.Struct):
    """The data of an event `message`; `time` is in seconds since 1970."""

    id: str
    node: str
    time: float
    size: int
    kind: Kind
    text: str  # in hex for binary data, or on request; the reason if it is hidden
    is_hex: bool
    is_masked: bool
    is_truncated: bool


class Status(msgspec.Struct):
    """The data of an event `status`: how many messages were shown, and how many were dropped as too many."""

    channel: str
    shown: int
    dropped: int
    left_s: int
    nodes: int  # number of connected ones
    silent: list[str]  # why nodes are left out, or not connected


class Tails:
    """The tails of one nsqadmin, TAILS_MAX at a time."""

    def __init__(self, context: Context, masks: Masks, time_max_s: float = TIME_MAX_S) -> None:
        self._context = context
        self._masks = masks
        self._time_max_s = time_max_s
        self._open = 0
        self._stopping = False

    async def stop(self, _app: web.Application) -> None:
        """Open ones end within WAIT_S."""
        self._stopping = True

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """404, 409 or 429 with the reason if a tail is impossible."""
        wanted = await read_json(request, TailOrder)
        if self._open >= TAILS_MAX:
            raise web.HTTPTooManyRequests(
                text=f"{TAILS_MAX} tails are open on this nsqadmin; close one first"
            )
        self._open += 1
        try:
            return await self._serve(request, wanted)
        finally:
            self._open -= 1

    async def _serve(self, request: web.Request, wanted: TailOrder) -> web.StreamResponse:
        topic = wanted.topic
        channel = f"{PREFIX}{secrets.token_hex(6)}#ephemeral"
        nodes, results = await self._choose_nodes(topic)
        silent = describe_left_out(results)
        error = "" if nodes else "; ".join(silent) or "no nsqd has this topic"
        async with contextlib.AsyncExitStack() as stack:
            if nodes:
                consumer = _make_consumer(self._context, topic, channel, nodes)
                try:
                    await stack.enter_async_context(consumer)
                except NsqfastError as failure:
                    error = explain_error(str(failure))
            await self._note(request, topic, channel, results, error)
            if error:
                raise web.HTTPConflict(text=error)
            response = web.StreamResponse(headers=HEADERS)
            await response.prepare(request)
            status = Status(channel, 0, 0, 0, 0, silent)
            stream = Stream(request, response, status, self._time_max_s)
            with contextlib.suppress(ConnectionError):
                await self._run(stream, consumer, wanted.view)
        return response

    async def _run(self, stream: "Stream", consumer: Consumer, view: str) -> None:
        try:
            async with asyncio.timeout(self._time_max_s):
                async for messages in _taken(consumer):
                    if self._stopping or stream.is_gone:
                        return
                    shown = [self._show(each, view) for each in messages[: stream.room()]]
                    await stream.send(shown, len(messages))
                    await stream.send_status(consumer)
        except TimeoutError:
            # A browser that no longer reads does not get the end, either.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STATUS_S):
                    await stream.end(f"{self._time_max_s / 60:g} minutes are over.")

    def _show(self, message: Message, view: str) -> Tailed:
        piece = message.body[:MASKED_SIZE_MAX]
        is_whole = len(piece) == len(message.body)
        body = cut_body(show_body(piece, is_whole=is_whole, masks=self._masks, is_admin=True))
        is_hex = body.kind == "binary" or (body.kind == "text" and view == "hex")
        return Tailed(
            id=message.id.decode("ascii", "replace"),
            node=message.nsqd,
            time=message.timestamp_ns / 1e9,
            size=len(message.body),
            kind=body.kind,
            text=body.hex if is_hex else body.body or body.reason,
            is_hex=is_hex,
            is_masked=body.is_masked,
            is_truncated=body.is_truncated,
        )

    async def _choose_nodes(self, topic: str) -> tuple[list[Node], list[Result]]:
        cluster = self._context.poller.cluster
        found = cluster.topics.get(topic)
        if found is None:
            raise web.HTTPNotFound(text="no such topic")
        nodes = list(cluster.nodes_of(found.parts).values())
        slots = asyncio.Semaphore(NODES_AT_ONCE)

        async def ask(node: Node) -> Result:
            if node.state is NodeState.DOWN:
                return Result(node.key, ok=False, text=node.error or "it is down")
            if trouble := trouble_of(_tcp_address(node)):
                return Result(node.key, ok=False, text=trouble)
            async with slots:
                return await self._ask(node, topic)

        results = list(await asyncio.gather(*map(ask, nodes)))
        chosen = [node for node, result in zip(nodes, results, strict=True) if result.ok]
        return chosen, results

    async def _ask(self, node: Node, topic: str) -> Result:
        """Whether a tail of it would take messages from nobody.

        A topic without a channel keeps its messages for its first channel. That must not be a tail, whose channel is
        gone in five minutes, and its messages with it. A topic that is gone must not come back for a tail.
        """
        try:
            stats = await self._context.upstream.read(node.key, stats_path(topic), NsqdStats)
        except UpstreamError as error:
            return Result(node.key, ok=False, text=error.message)
        for each in stats.topics_named(topic):
            names = [channel.channel_name for channel in each.channels or ()]
            is_kept = any(not name.startswith(PREFIX) for name in names)
            return Result(node.key, ok=is_kept, text="" if is_kept else NO_CHANNEL)
        return Result(node.key, ok=False, text="it does not have the topic any more")

    async def _note(
        self, request: web.Request, topic: str, channel: str, results: list[Result], error: str
    ) -> None:
        effect = {"reason": error} if error else {"makes": channel}
        outcome = "failed" if error else outcome_of(results)
        note, target = self._context.audit.note, {"topic": topic}
        await note(request, "tail", target, effect=effect, results=results, outcome=outcome)


class Stream:
    """The answer: events to one browser, SHOWN_PER_S messages at most."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, status: Status, time_max_s: float
    ) -> None:
        self._request = request
        self._response = response
        self._status = status
        self._left_out = status.silent
        self._time_max_s = time_max_s
        self._begun = self._status_due = time.monotonic()
        self._second, self._in_second = 0, 0

    @property
    def is_gone(self) -> bool:
        transport = self._request.transport
        return transport is None or transport.is_closing()

    def room(self) -> int:
        """Messages that may still be shown in this second."""
        second = int(time.monotonic() - self._begun)
        if second != self._second:
            self._second, self._in_second = second, 0
        return SHOWN_PER_S - self._in_second

    async def send(self, shown: list[Tailed], count: int) -> None:
        """Send the messages for which there is room, out of `count`."""
        self._in_second += len(shown)
        self._status.shown += len(shown)
        self._status.dropped += count - len(shown)
        if shown:
            await self._response.write(b"".join(_event("message", each) for each in shown))

    async def send_status(self, consumer: Consumer) -> None:
        """Called once a second; also detects a browser that is gone."""
        now = time.monotonic()
        if now < self._status_due:
            return
        self._status_due = now + STATUS_S
        connections = consumer.stats().connections
        status = self._status
        status.left_s = max(0, round(self._time_max_s - (now - self._begun)))
        status.nodes = sum(each.is_connected for each in connections.values())
        status.silent = self._left_out + [
            f"{address}: {explain_error(each.error)}"
            for address, each in connections.items()
            if not each.is_connected
        ]
        await self._response.write(_event("status", status))

    async def end(self, reason: str) -> None:
        """Send the last event, which says why it is the last."""
        await self._response.write(_event("end", {"reason": reason}))


def cut_body(body: Body) -> Body:
    """At most PIECE_SIZE_MAX bytes of it; masking is already done."""
    if len(body.data) <= PIECE_SIZE_MAX:
        return body
    piece = body.data[:PIECE_SIZE_MAX]
    shown = show_body(piece, is_whole=False, masks=Masks(()), is_admin=True)
    return msgspec.structs.replace(shown, is_masked=body.is_masked)


def describe_left_out(results: list[Result]) -> list[str]:
    """Why nodes are left out, each reason once."""
    nodes: dict[str, list[str]] = {}
    for result in results:
        if not result.ok:
            nodes.setdefault(result.text, []).append(result.node)
    return [f"{', '.join(keys)}: {reason}" for reason, keys in nodes.items()]


def explain_error(error: str) -> str:
    reason = next((text for word, text in WANTED.items() if word in error), "")
    # nsqd's own words: what follows them tells programs what to write.
    return f"{reason} ({error.partition('; ')[0]})" if reason else error


def _event(name: str, data: object) -> bytes:
    # The JSON contains no line breaks.
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


def _tcp_address(node: Node) -> str:
    return join_host_port(node.broadcast_address, node.tcp_port)


def _make_consumer(context: Context, topic: str, channel: str, nodes: list[Node]) -> Consumer:
    addresses = [_tcp_address(node) for node in nodes]
    options = context.options
    has_tls = bool(options.http_client_tls_root_ca_file or options.http_client_tls_cert)
    config = Config(
        client_id="nsqadmin",
        max_in_flight=max(IN_FLIGHT_MAX, len(addresses)),
        max_attempts=0,
        tls_v1=has_tls or options.http_client_tls_insecure_skip_verify,
        tls_root_ca_file=options.http_client_tls_root_ca_file,
        tls_cert=options.http_client_tls_cert,
        tls_key=options.http_client_tls_key,
        tls_insecure_skip_verify=options.http_client_tls_insecure_skip_verify,
        auth_secret=context.upstream.secret_for(is_tls=has_tls),
    )
    return Consumer(topic, channel, nsqd=addresses, config=config)


async def _taken(consumer: Consumer) -> AsyncIterator[list[Message]]:
    """Received messages, finished at once, or nothing for WAIT_S; no more than TAKEN_PER_S."""
    while True:
        messages = await consumer.take(IN_FLIGHT_MAX, WAIT_S)
        for message in messages:
            message.finish()
        yield messages
        if messages:
            await asyncio.sleep(len(messages) / TAKEN_PER_S)
