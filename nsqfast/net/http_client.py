"""Requests to HTTP/1 servers: connections that are kept open, deadlines, TLS, and bounds on what comes back.

This does not use aiohttp: a request costs some 100 µs of CPU time there and 15 to 30 here, a topic may be on a hundred
nodes, and nsq_to_http has a request for each message. httptools parses the answers.
"""

import asyncio
import contextlib
import errno
import ipaddress
import math
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, cast

import httptools

from nsqfast.errors import NsqfastError
from nsqfast.net.http_target import Origin
from nsqfast.wire.gotext import os_error

HEAD_SIZE_MAX = 64 << 10  # also of what follows a body
FINAL = 200  # lower statuses only announce another answer

IpAddress = tuple[str, int]


class BrokenError(NsqfastError):
    """There was no complete answer."""


class EndedError(BrokenError):
    """The connection ended, perhaps after a part of the answer."""

    def __init__(self, cause: Exception | None, *, has_begun: bool) -> None:
        text = os_error(cause) if isinstance(cause, OSError) else str(cause or "")
        super().__init__(text or ("unexpected EOF" if has_begun else "EOF"))
        self.cause = cause
        self.has_begun = has_begun


class UnreachableError(NsqfastError):
    """The server cannot be reached; `cause` is the system's error, TimeoutError if there was no reaction."""

    def __init__(self, origin: Origin, cause: OSError) -> None:
        super().__init__(str(cause))
        self.origin = origin
        self.cause = cause


class Body(Protocol):
    """Takes the body of an answer."""

    def add(self, piece: bytes, /) -> None:
        """BrokenError: this one is too large."""


class Answer(NamedTuple):
    """An answer with any status; the names of its headers are in lower case."""

    status: int
    reason: bytes = b""
    headers: Mapping[bytes, bytes] = {}


class HttpConnection(asyncio.Protocol):
    """A request, its answer, the next request; `on_lost` is called when it cannot take another one."""

    def __init__(self, on_lost: Callable[["HttpConnection"], None], head_size_max: int) -> None:
        self.deadline_s = math.inf  # of the request
        self.idle_since_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._head_size_max = head_size_max
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._body: Body | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._start_answer()

    def _start_answer(self) -> None:
        self._has_begun = False
        self._size = 0  # received since the last piece of a body that is wanted
        self._status = 0  # set when the head is complete
        self._reason = b""
        self._headers: dict[bytes, bytes] = {}  # with names in lower case
        self._error: BrokenError | None = None
        self._is_complete = False
        self._is_last = False  # the server wants to close, or sent more than one answer

    @property
    def is_open(self) -> bool:
        """Whether it accepts a request."""
        return self._transport is not None

    def ask(self, request: bytes, body: Body | None, deadline_s: float) -> asyncio.Future[Answer]:
        """The answer, BrokenError, or TimeoutError; who cancels it has to abort the connection.

        Without a `body` the status suffices: what comes behind it may be cut off.
        """
        assert self._waiter is None
        self.deadline_s, self._body = deadline_s, body
        waiter = self._waiter = self._loop.create_future()
        if self._transport is None:
            self._end(EndedError(None, has_begun=False))
        else:
            self._transport.write(request)
        return waiter

    def time_out(self) -> None:
        """The time of the request is over."""
        self._end(TimeoutError())

    def abort(self) -> None:
        """Close: nobody uses it any more."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self._on_lost(self)

    def _end(self, error: Exception) -> None:
        """End the request by what has come of the answer, and take no other."""
        self.abort()
        if self._status and self._body is None:
            self._resolve()
        elif self._waiter is not None:
            waiter, self._waiter, self._body = self._waiter, None, None
            if not waiter.done():
                waiter.set_exception(error)

    def _finish(self) -> None:
        """The whole answer has arrived."""
        transport = self._transport
        # Bytes of the request that are still here would stand in front of the next one.
        if self._is_last or (transport is not None and transport.get_write_buffer_size()):
            self.abort()
        self._resolve()
        self._start_answer()

    def _resolve(self) -> None:
        waiter, self._waiter, self._body = self._waiter, None, None
        if waiter is not None and not waiter.done():
            waiter.set_result(Answer(self._status, self._reason, self._headers))

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.abort()  # an answer without a request
            return
        self._has_begun = True
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._is_complete:
                self._end(BrokenError("the answer is not one of HTTP"))
                return
            self._is_last = True
        if self._error is not None:
            self._end(self._error)
        elif self._is_complete:
            self._finish()
        elif self._size > self._head_size_max:
            text = f"the head of the answer is larger than {self._head_size_max} bytes"
            self._end(BrokenError(text))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, lost = None, self._transport
        if lost is not None:
            self._on_lost(self)
        has_length = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if error is None and self._status and not has_length:
            self._resolve()
        else:
            self._end(EndedError(error, has_begun=self._has_begun))

    # -- the parser's side

    def on_message_begin(self) -> None:
        self._is_last = self._is_complete

    def on_status(self, reason: bytes) -> None:
        if not self._is_complete:
            self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_complete:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._is_complete:
            return
        status = self._parser.get_status_code()
        if status >= FINAL:
            self._status = status
        else:
            self._reason, self._headers = b"", {}

    def on_body(self, piece: bytes) -> None:
        if self._body is None:
            return
        self._size = 0
        if self._status and not self._is_complete and self._error is None:
            try:
                self._body.add(piece)
            except BrokenError as error:
                self._error = error  # the parser would hide it

    def on_message_complete(self) -> None:
        if self._status and not self._is_complete:
            self._is_complete = True
            # Only now: after the end of the answer the parser no longer knows.
            self._is_last = not self._parser.should_keep_alive()


@dataclass(slots=True)
class _Server:
    """Requests to one origin that are under way or wait for their turn, and its free connections."""

    origin: Origin
    asking: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    idle: list[HttpConnection] = field(default_factory=list)  # the one used last is used next


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What a client grants its servers; 0 seconds = for ever."""

    connect_s: float
    request_s: float  # from `ask` to the end of the answer, connecting included
    idle_s: float  # for which a connection is kept that has nothing to do; 0 = none is kept
    tls_s: float = 0.0  # more for connecting with TLS
    connections_max: float = math.inf  # to each server, so that a silent one cannot use up all
    head_size_max: int = HEAD_SIZE_MAX  # with the body, if that is not wanted


class HttpClient:
    """Asks servers; `tls` is the context for those with TLS, None for that of this machine."""

    def __init__(self, limits: ClientLimits, tls: ssl.SSLContext | None = None) -> None:
        self.limits = limits
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._servers: dict[Origin, _Server] = {}
        self._open: set[HttpConnection] = set()
        self._busy: set[HttpConnection] = set()
        self._is_closed = False
        self._watched_s = math.inf  # when to look at the busy ones next
        self._watch: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None

    def deadline_s(self) -> float:
        """The deadline, by the loop's clock, of a request that begins now."""
        return self._loop.time() + (self.limits.request_s or math.inf)

    async def ask(
        self, origin: Origin, request: bytes, body: Body | None, deadline_s: float
    ) -> Answer:
        """UnreachableError, BrokenError, or TimeoutError; `body` takes that of the answer, None: its status suffices.

        The server may receive it twice: over a connection that it was about to close, and over a new one.
        """
        server = self._servers.get(origin)
        if server is None:
            server = self._servers[origin] = _Server(origin)
        if server.asking < self.limits.connections_max:
            server.asking += 1
        else:
            await self._wait_turn(server, deadline_s)
        try:
            if server.idle:
                connection = server.idle.pop()
                try:
                    return await self._ask_over(server, connection, request, body, deadline_s)
                except EndedError as error:
                    if error.has_begun:
                        raise
                    # The server closed it as idle, or restarted; the others are closed, too.
                    for connection in list(server.idle):
                        connection.abort()
            connection = await self._connect(server, deadline_s)
            return await self._ask_over(server, connection, request, body, deadline_s)
        finally:
            if server.waiting or server.asking == 1:
                self._leave(server)
            else:  # nothing to hand over or to forget
                server.asking -= 1

    def close(self) -> None:
        """Close; waiting requests get no answer."""
        self._is_closed = True
        for connection in list(self._open):
            connection.abort()
        for timer in (self._watch, self._sweep):
            if timer is not None:
                timer.cancel()

    async def _wait_turn(self, server: _Server, deadline_s: float) -> None:
        turn = self._loop.create_future()
        server.waiting.append(turn)
        try:
            async with asyncio.timeout_at(_when(deadline_s)):
                await turn  # a leaving request hands over its place
        except (asyncio.CancelledError, TimeoutError):
            if turn.done() and not turn.cancelled():
                self._leave(server)
            raise

    def _leave(self, server: _Server) -> None:
        while server.waiting:
            turn = server.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        server.asking -= 1
        self._forget_unused(server)

    def _forget_unused(self, server: _Server) -> None:
        if not server.asking and not server.idle:
            self._servers.pop(server.origin, None)

    async def _ask_over(
        self,
        server: _Server,
        connection: HttpConnection,
        request: bytes,
        body: Body | None,
        deadline_s: float,
    ) -> Answer:
        if deadline_s < self._watched_s:
            self._watch_at(deadline_s)
        self._busy.add(connection)
        try:
            answer = await connection.ask(request, body, deadline_s)
        except asyncio.CancelledError:
            connection.abort()
            raise
        finally:
            self._busy.discard(connection)
        if not self.limits.idle_s:
            connection.abort()
        elif connection.is_open:
            server.idle.append(connection)
            connection.idle_since_s = self._loop.time()
            if self._sweep is None:
                self._watch_idle()
        return answer

    # -- connecting

    async def _connect(self, server: _Server, deadline_s: float) -> HttpConnection:
        if self._is_closed:
            cause = ConnectionAbortedError(errno.ECONNABORTED, "closed")
            raise UnreachableError(server.origin, cause)
        is_tls, host, port = server.origin
        if is_tls and self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        async with asyncio.timeout_at(_when(deadline_s)):
            try:
                async with asyncio.timeout(self._connect_s(is_tls)):
                    return await self._connect_to_one(server, await _resolve(host, port))
            except OSError as error:  # TLS errors are OSErrors, too
                raise UnreachableError(server.origin, error) from None

    def _connect_s(self, is_tls: bool) -> float | None:
        connect_s, tls_s = self.limits.connect_s, self.limits.tls_s
        return connect_s + (tls_s if is_tls else 0.0) if connect_s else None

    async def _connect_to_one(
        self, server: _Server, addresses: Sequence[IpAddress]
    ) -> HttpConnection:
        """The first address that answers; one that swallows everything leaves some time for the next."""
        connect_s = self._connect_s(server.origin.is_tls)
        for rest in range(len(addresses), 0, -1):
            try:
                async with asyncio.timeout(connect_s and connect_s / rest):
                    return await self._connect_to(server, *addresses[-rest])
            except OSError:
                if rest == 1:
                    raise
        raise AssertionError("the resolver found nothing and said so")

    async def _connect_to(self, server: _Server, ip: str, port: int) -> HttpConnection:
        def lost(connection: HttpConnection) -> None:
            self._open.discard(connection)
            if connection in server.idle:
                server.idle.remove(connection)
                self._forget_unused(server)

        is_tls = server.origin.is_tls
        _, connection = await self._loop.create_connection(
            lambda: HttpConnection(lost, self.limits.head_size_max),
            ip,
            port,
            ssl=self._tls if is_tls else None,
            server_hostname=server.origin.host if is_tls else None,
        )
        self._open.add(connection)
        return connection

    # -- time

    def _watch_at(self, time_s: float) -> None:
        """One timer for all: a request answered in time costs no timer of its own."""
        if self._watch is not None:
            self._watch.cancel()
        self._watched_s = time_s
        self._watch = self._loop.call_at(time_s, self._time_out)

    def _time_out(self) -> None:
        self._watch, self._watched_s = None, math.inf
        now_s = self._loop.time()
        next_s = math.inf
        for connection in list(self._busy):
            if connection.deadline_s <= now_s:
                connection.time_out()
            else:
                next_s = min(next_s, connection.deadline_s)
        if next_s < math.inf:
            self._watch_at(next_s)

    def _watch_idle(self) -> None:
        self._sweep = self._loop.call_later(self.limits.idle_s, self._close_idle)

    def _close_idle(self) -> None:
        self._sweep = None
        since_s = self._loop.time() - self.limits.idle_s
        idle = [connection for server in self._servers.values() for connection in server.idle]
        for connection in idle:
            if connection.idle_since_s <= since_s:
                connection.abort()
            elif self._sweep is None:
                self._watch_idle()


def _when(deadline_s: float) -> float | None:
    return None if deadline_s == math.inf else deadline_s


async def _resolve(name: str, port: int) -> Sequence[IpAddress]:
    with contextlib.suppress(ValueError):
        return [(str(ipaddress.ip_address(name)), port)]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from None
    return [(str(at[0]), int(at[1])) for _, _, _, _, at in found]
