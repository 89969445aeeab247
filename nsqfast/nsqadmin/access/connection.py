"""A browser's connection: how many there may be, and how long one may take to ask. Unreadable requests are answered
here: with our headers, and one log line.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aiohttp import web

from nsqfast.net.descriptor_reserve import DescriptorReserve
from nsqfast.net.listener import Ceiling, Factory, Listener
from nsqfast.net.refusal import refuse_http
from nsqfast.net.slices import Turns
from nsqfast.net.tls_protocol import TlsProtocol
from nsqfast.nsqadmin.access.answers import SecurityHeaders
from nsqfast.nsqadmin.options import Options
from nsqfast.wire.gotext import format_address
from nsqfast.wire.refusals import REFUSED

log = logging.getLogger("nsqadmin")

HEAD_S = 10.0  # for a whole head, and between two pieces of a body
IDLE_S = 75.0  # between two requests; proxies keep connections for a minute


class LimitedConnection(web.RequestHandler):
    __slots__ = ("_connections", "_has_begun", "_headers", "_timer")

    def __init__(
        self, manager: web.Server, headers: SecurityHeaders, connections: "set[Any]", **kwargs: Any
    ) -> None:
        super().__init__(manager, keepalive_timeout=IDLE_S, **kwargs)
        self._headers = headers
        self._connections = connections
        self._has_begun = False  # a request of which something is missing
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.add(self)
        self._wait()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._connections.discard(self)
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        self._has_begun = True
        super().data_received(data)
        body = self._last_body()
        if body is None:
            if self._timer is None:
                self._wait()
        elif body.is_eof():
            self._stop_waiting()
        else:
            self._wait()

    def _last_body(self) -> Any:
        """That of the last request whose head is whole, unless it was answered."""
        if self._messages:
            return self._messages[-1][1]
        return None if self._current_request is None else self._current_request.content

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(HEAD_S, self._end)

    def _stop_waiting(self) -> None:
        self._has_begun = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        if self._has_begun:  # browsers also open connections in advance
            REFUSED["slow_request"] += 1
            peer = format_address(self.transport and self.transport.get_extra_info("peername"))
            log.warning(
                "HTTP: client(%s) is cut off, its request was not whole in %g s", peer, HEAD_S
            )
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes what was sent
    ) -> web.StreamResponse:
        """Handle unreadable HTTP, or an answer that failed after it had begun."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun")
        peer = format_address(self.transport and self.transport.get_extra_info("peername"))
        if status < 500:
            log.info("HTTP: client(%s) sent what is no request: %s", peer, type(exc).__name__)
        else:
            log.error("HTTP: client(%s) got no answer", peer, exc_info=exc)
        answer = web.Response(
            status=status, text="BAD_REQUEST" if status < 500 else "INTERNAL_ERROR"
        )
        self._headers.add_to(answer)
        answer.force_close()
        return answer


@contextlib.contextmanager
def serve(
    runner: web.AppRunner,
    bound: socket.socket,
    options: Options,
    tls_context: Callable[[], ssl.SSLContext | None],
) -> Iterator[None]:
    """Accept connections on `bound` for the duration of the block; `runner` is set up."""
    manager = runner.server
    assert manager is not None
    loop = asyncio.get_running_loop()
    connections: set[Any] = set()
    make: Factory = partial(
        LimitedConnection,
        manager,
        SecurityHeaders(options),
        connections,
        loop=loop,
        access_log=None,
        logger=log,
    )
    count_max = options.max_connections
    if tls_context() is None:
        ceiling = Ceiling(count_max, refuse_http)
        count = connections.__len__
    else:
        opened: set[Any] = set()  # includes those whose handshake is not finished

        turns = Turns()

        def under_tls(make_inner: Factory, counted: "set[Any] | None") -> TlsProtocol:
            context = tls_context()  # that of the last reload
            assert context is not None
            return TlsProtocol(make_inner, context, turns, counted)

        make = partial(under_tls, make, opened)
        ceiling = Ceiling(count_max, partial(under_tls, refuse_http, None))
        count = opened.__len__
    reserve = DescriptorReserve(loop)
    listener = Listener("HTTP", bound, make, reserve, count, ceiling if count_max else None)
    listener.start()
    try:
        yield
    finally:
        listener.close()
        reserve.close()
