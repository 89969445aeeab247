"""POST /pub and /mpub: the order of checks is part of the interface (spec nsqd-http §3)."""

import asyncio
import logging
import re
from collections.abc import Awaitable
from functools import partial

from nsqfast._ext.broker.mpub_bodies import Bodies
from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.core.usage import Usage
from nsqfast._ext.server.http_shortcut import PublishShortcut
from nsqfast.errors import ProtocolError
from nsqfast.net.http_message import ACTUAL, ANSWERED, DECLARED, Request, Response, render
from nsqfast.net.http_reply import HttpError, error_answer, parameters, required, text_answer
from nsqfast.net.slices import Slices
from nsqfast.nsqd.options import Options
from nsqfast.wire.gotext import INT64_MAX
from nsqfast.wire.names import is_valid_name
from nsqfast.wire.refusals import EXITING, PUBLISH_REFUSED, REFUSED, NotTakenError

log = logging.getLogger("nsqd")

SLICE_UNITS = 1024  # of a budget: the clock is read after each slice of messages
OK = text_answer("OK")
# The texts of ENOSPC, EDQUOT and EFBIG, as nsqd writes them.
FULL_DISK = ("no space left on device", "disk quota exceeded", "file too large")
_PLAIN = Request("POST", b"/pub", "")  # shared by all requests that take the shortcut
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_IS_BINARY = {"false": False, "0": False, "true": True, "1": True}


class HttpPublisher:
    """Handlers that put messages into topics."""

    def __init__(self, registry: Registry, options: Options) -> None:
        self._registry = registry
        self._message_size_max = options.max_msg_size
        self._defer_ms_max = options.defer_ns_max // 1_000_000
        self._line = asyncio.Lock()  # for requests that take more than a part of a turn

    def shortcut(self, asks_host: bool) -> PublishShortcut:
        """For publishes that need no handler."""
        return PublishShortcut(self._registry, reply, asks_host)

    def pub(self, request: Request) -> Response | Awaitable[Response]:
        """Publish one message."""
        body = request.body
        if request.oversize or len(body) > self._message_size_max:
            raise HttpError(413, "MSG_TOO_BIG")
        if not body:
            raise HttpError(400, "MSG_EMPTY")
        if request.usage is not None:
            _pay(request.usage, 1)
        values = parameters(request)
        topic = self.open_topic(required(values, "topic"))
        defer_ms = self._defer_ms(values["defer"]) if "defer" in values else 0
        try:
            ticket = topic.put(bytes(body), defer_ms)
        except NotTakenError as error:
            return not_taken(error)
        return self.when_durable(ticket)

    def mpub(self, request: Request) -> Response | Awaitable[Response]:
        """Publish many messages, as lines or with their sizes in front."""
        if request.oversize == DECLARED:
            raise HttpError(413, "BODY_TOO_BIG")
        values = parameters(request)
        topic = self.open_topic(required(values, "topic"))
        is_binary = _read_binary(request, values)
        if request.oversize == ACTUAL:
            raise HttpError(413, "BODY_TOO_BIG")
        if request.usage is not None:
            _pay(request.usage, _count(bytes(request.body), is_binary))
        try:
            bodies = Bodies(topic, request.body, is_binary)
            if not bodies.check() or bodies.has_parts():
                return self._put_later(bodies)
            ticket = bodies.put()
        except (ProtocolError, NotTakenError) as error:
            return _refuse(error)
        return self.when_durable(ticket)

    async def _put_later(self, bodies: Bodies) -> Response:
        """Publish one request at a time, a part in each turn; answers after the last message."""
        try:
            async with self._line:
                answer = await self._put_in_parts(bodies)
        except (ProtocolError, NotTakenError) as error:
            return _refuse(error)
        return answer if isinstance(answer, Response) else await answer

    async def _put_in_parts(self, bodies: Bodies) -> Response | Awaitable[Response]:
        while not bodies.check():
            await _let_others()
        if not bodies.has_parts():
            return self.when_durable(bodies.put())
        if bodies.is_logged:
            await _log(bodies)
            return self.when_durable(bodies.ticket)
        slices = Slices()
        while True:
            ticket = bodies.put()
            if bodies.is_done:
                return self.when_durable(ticket)
            await slices.pause(SLICE_UNITS)

    def open_topic(self, name: str) -> Topic:
        """The topic to publish to, created if need be; HttpError while nothing is taken."""
        registry = self._registry
        if registry.is_draining:
            PUBLISH_REFUSED["draining"] += 1
            raise HttpError(503, "DRAINING")
        if (reason := registry.durability.store.health.low_disk) is not None:
            PUBLISH_REFUSED["low_disk"] += 1
            raise HttpError(503, "DISK_FULL", reason)
        topic = registry.topics.find(name)
        if topic is not None:
            return topic
        if not is_valid_name(name):
            raise HttpError(400, "INVALID_TOPIC")
        if registry.durability.closing:
            PUBLISH_REFUSED[EXITING] += 1
            raise HttpError(503, "EXITING")
        admit(registry, name)
        return registry.topics.ensure(name)

    def _defer_ms(self, text: str) -> int:
        if _INTEGER.fullmatch(text):
            defer_ms = int(text)
            if 0 <= defer_ms <= min(self._defer_ms_max, INT64_MAX):
                return defer_ms
        raise HttpError(400, "INVALID_DEFER")

    def when_durable(
        self, ticket: int, errors: list[str | None] | None = None
    ) -> Response | Awaitable[Response]:
        """OK at once if there is nothing to wait for, otherwise a future of it; `errors`: those of earlier parts."""
        if not ticket:
            return OK
        promise = _Promise(errors)
        self._registry.durability.when_durable(ticket, promise.keep)
        return promise.response or promise.future()


def admit(registry: Registry, topic: str, channel: str | None = None) -> None:
    """403 if the topic would exceed the limit."""
    try:
        registry.topics.admit(topic, channel)
    except ProtocolError as error:
        kind = "TOPICS" if error.code == "E_BAD_TOPIC" else "CHANNELS"
        raise HttpError(403, f"TOO_MANY_{kind}") from None


def reply(error: Exception | None, path: str = "/pub") -> bytes:
    """The answer to a publish that took the shortcut, as a handler and its connection would have given and counted it.

    The shortcut itself counts successes: it asks for their answer once a second.
    """
    if error is None:
        return render(_PLAIN, OK)
    if isinstance(error, NotTakenError):
        answer = not_taken(error)
    else:
        log.error("HTTP: a publish failed", exc_info=error)
        answer = error_answer(500, "INTERNAL_ERROR")
    ANSWERED[path, answer.status] += 1
    return render(_PLAIN, answer)


class _Promise:
    """An answer that is due when the messages are on disk, which is often already the case."""

    __slots__ = ("_errors", "_future", "response")

    def __init__(self, errors: list[str | None] | None) -> None:
        self._errors = [] if errors is None else errors
        self.response: Response | None = None
        self._future: asyncio.Future[Response] | None = None

    def future(self) -> "asyncio.Future[Response]":
        self._future = asyncio.get_running_loop().create_future()
        return self._future

    def keep(self, error: str | None) -> None:
        error = error or next(filter(None, self._errors), None)
        self.response = OK if error is None else not_taken(NotTakenError(error))
        if self._future is not None and not self._future.done():
            self._future.set_result(self.response)


async def _log(bodies: Bodies) -> None:
    """Bring them into the commit log as a whole, and wait until they are in the queues."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        while not bodies.log_some():
            await _let_others()
        bodies.when_over(partial(over.set_result, None))
        await over
    finally:
        bodies.leave()


async def _let_others() -> None:
    """Yield to the loop."""
    await asyncio.sleep(0)


def _count(body: bytes, is_binary: bool) -> int:
    """How many messages there are at most."""
    if is_binary:
        return min(int.from_bytes(body[:4]), len(body) // 5)
    return body.count(b"\n") + 1


def _pay(usage: Usage, count: int) -> None:
    """Count so many messages for the identity; 429 while it has published more than it may."""
    if usage.pay_now(0):
        REFUSED["identity_rate"] += 1
        raise HttpError(429, "RATE_LIMITED")
    usage.pay_now(count)


def _refuse(error: ProtocolError | NotTakenError) -> Response:
    if isinstance(error, ProtocolError):
        return error_answer(413, error.code)
    return not_taken(error)


def not_taken(error: NotTakenError) -> Response:
    """503, or 429 over a policy's limit, counted; the reason is the operating system's text if a disk is at fault."""
    PUBLISH_REFUSED[error.kind] += 1
    if error.kind == EXITING:
        return error_answer(503, "EXITING")
    if error.kind == "over_limit":
        return error_answer(429, "OVER_LIMIT")
    on_disk = "DISK_FULL" if error.reason.endswith(FULL_DISK) else "DISK_FAILED"
    code = "NO_MEMORY" if error.kind == "memory" else on_disk
    return error_answer(503, code, reason=error.reason)


def _read_binary(request: Request, values: dict[str, str]) -> bool:
    value = values.get("binary")
    if value is None:
        return False
    is_binary = _IS_BINARY.get(value)
    if is_binary is None:
        if (note := request.admit_line()) is not None:
            log.warning("/mpub: binary=%r taken as true; say true, 1, false or 0%s", value, note)
        return True
    return is_binary
