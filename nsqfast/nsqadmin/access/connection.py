"""A browser's connection. Unreadable requests are answered here: with our headers, and one log line."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from nsqfast.gotext import format_address
from nsqfast.nsqadmin.access.headers import SecurityHeaders
from nsqfast.nsqadmin.options import Options

log = logging.getLogger("nsqadmin")


class Connection(web.RequestHandler):
    """Created for each accepted connection."""

    __slots__ = ("_headers",)

    def __init__(self, manager: web.Server, headers: SecurityHeaders, **kwargs: Any) -> None:
        super().__init__(manager, **kwargs)
        self._headers = headers

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


@contextlib.asynccontextmanager
async def serve(
    runner: web.AppRunner, bound: socket.socket, options: Options
) -> AsyncIterator[None]:
    """Accept connections on `bound` for the duration of the block; `runner` is set up."""
    manager = runner.server
    assert manager is not None
    loop = asyncio.get_running_loop()
    headers = SecurityHeaders(options)

    def connect() -> Connection:
        return Connection(manager, headers, loop=loop, access_log=None, logger=log)

    server = await loop.create_server(connect, sock=bound)
    try:
        yield
    finally:
        server.close()
