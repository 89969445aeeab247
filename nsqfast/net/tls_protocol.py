"""TLS below a protocol that knows nothing of it, for listeners that speak TLS from the first byte.

asyncio's own TLS fixes its context when the listener opens, and a client whose handshake fails does not get the alert
that says why.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, cast

from nsqfast._ext.protocol.buffer import ReadBuffer
from nsqfast.net.slices import Turns
from nsqfast.streams.adapter import StreamError
from nsqfast.streams.tls import NOT_TLS, TlsStream
from nsqfast.wire.gotext import format_address

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 5.0
# Go's answer to a client that took the port for a plain one.
PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"OPTIONS ")


class TlsProtocol(asyncio.BufferedProtocol):
    """One connection; `make_inner` makes the protocol that takes over when the handshake is done.

    It reads into the room of `turns`, which others use, too. The connection is in `connections` as long as it lasts,
    including the handshake.
    """

    def __init__(
        self,
        make_inner: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        turns: Turns,
        connections: "set[Any] | None" = None,
    ) -> None:
        self._make_inner = make_inner
        self._connections = connections
        self._inner: asyncio.Protocol | None = None
        self.context = context
        self._room, self._memory = turns.room, turns.memory
        self._stream = TlsStream(context)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._peer = ""
        self._has_ended = False  # our side; later input is not read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._memory.charge_bytes(self._stream.size)
        self._transport = cast("asyncio.Transport", transport)
        self._peer = format_address(transport.get_extra_info("peername"))
        if self._connections is not None:
            self._connections.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HANDSHAKE_TIMEOUT_S, self._fail, "i/o timeout")

    def get_buffer(self, sizehint: int) -> ReadBuffer:  # noqa: ARG002 - asyncio's hint; the room has one size
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        room = self._room
        room.advance(nbytes)
        data = room.waiting()
        room.discard(nbytes)
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self._has_ended:
            return
        try:
            for piece in self._stream.unpack(data):
                self._opened().data_received(piece)
                if transport.is_closing() or self._has_ended:
                    return
        except StreamError as error:
            if str(error) == NOT_TLS and data.startswith(METHODS):
                transport.write(PLAIN_HTTP)
            self._fail(str(error))
            return
        if reply := self._stream.reply():
            transport.write(reply)
        if self._stream.is_ready:
            self._opened()
        if self._stream.at_end and not self.eof_received():
            self.close()

    def _opened(self) -> asyncio.Protocol:
        """Tell the inner protocol that it has a connection, if it does not know yet."""
        if self._inner is None:
            assert self._timer is not None
            self._timer.cancel()
            self._inner = self._make_inner()
            self._inner.connection_made(TlsTransport(self))
        return self._inner

    def _fail(self, why: str) -> None:
        transport = self._transport
        if transport is None:
            return
        log.error("TLS: client(%s) - %s", self._peer, why)
        transport.write(self._stream.reply())
        transport.close()

    def eof_received(self) -> bool:
        return bool(self._inner is not None and self._inner.eof_received())

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._memory.charge_bytes(-self._stream.size)
        if self._connections is not None:
            self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    # the side of the inner protocol

    @property
    def transport(self) -> asyncio.Transport:
        """The socket's transport."""
        assert self._transport is not None
        return self._transport

    def write(self, data: Any) -> None:
        """Encrypt data and write it to the socket."""
        if self._transport is not None and not self._has_ended:
            self._transport.write(self._stream.pack(data))

    def end(self) -> None:
        """Announce the end of our data."""
        if self._transport is not None and not self._has_ended:
            self._has_ended = True
            self._transport.write(self._stream.end())

    def close(self) -> None:
        """Close after written data has left."""
        if self._transport is not None:
            self.end()
            self._transport.close()


class TlsTransport(asyncio.Transport):
    """The transport that the inner protocol sees."""

    def __init__(self, connection: TlsProtocol) -> None:
        super().__init__()
        self._connection = connection
        self._socket = connection.transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._connection.context
        return self._socket.get_extra_info(name, default)

    def write(self, data: Any) -> None:
        self._connection.write(data)

    def can_write_eof(self) -> bool:
        return self._socket.can_write_eof()

    def write_eof(self) -> None:
        """Discard everything written after this."""
        self._connection.end()
        self._socket.write_eof()

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()
