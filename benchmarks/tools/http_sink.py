"""An HTTP server that accepts everything at little cost: python http_sink.py; its port is the first line that it
prints.

GET /count returns how many requests with a body it has received.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools
import uvloop

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"


class Sink(asyncio.Protocol):
    """One connection."""

    count = 0  # of all connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self._parser = httptools.HttpRequestParser(self)
        self._answers: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if self._answers:
            self._transport.write(b"".join(self._answers))
            self._answers.clear()

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"GET":
            body = str(Sink.count).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            self._answers.append(head + body)
            return
        Sink.count += 1
        self._answers.append(OK)


async def serve() -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
