"""Thousands of commands over few connections, and few commands over thousands of connections."""

from __future__ import annotations

import http.client
import json
import selectors
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from nsqfast.wire.protocol import MAGIC_V2
from server.lookupd_protocol import read_exactly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from server.broker import Broker

SECONDS_MAX = 120.0
IN_AIR = 200
MESSAGE, ID_AT, ID_SIZE = 2, 18, 16  # a frame with a message: its type, and where its id stands
OK = b"\0\0\0\6\0\0\0\0OK"
NO_HEARTBEATS = {"heartbeat_interval": -1}
LONG_HEARTBEATS = {"heartbeat_interval": 60_000}


def address_of(text: str) -> tuple[str, int]:
    """Return host and port."""
    host, port = text.rsplit(":", 1)
    return host, int(port)


def sized(body: bytes) -> bytes:
    """Put its size in front."""
    return struct.pack(">i", len(body)) + body


def pub(topic: str, body: bytes) -> bytes:
    """Return one PUB."""
    return f"PUB {topic}\n".encode() + sized(body)


def dpub(topic: str, delay_ms: int, body: bytes) -> bytes:
    """Return one DPUB."""
    return f"DPUB {topic} {delay_ms}\n".encode() + sized(body)


def mpub(topic: str, body: bytes, count: int) -> bytes:
    """Return one MPUB of so many equal messages."""
    return f"MPUB {topic}\n".encode() + sized(struct.pack(">i", count) + sized(body) * count)


def identify(settings: dict[str, Any]) -> bytes:
    """Return one IDENTIFY."""
    return b"IDENTIFY\n" + sized(json.dumps(settings).encode())


class Line:
    """A connection that waits for its answers."""

    def __init__(self, tcp: str, settings: dict[str, Any] | None = None) -> None:
        self.socket = socket.create_connection(address_of(tcp), SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(MAGIC_V2 + identify(settings or NO_HEARTBEATS))
        self.read_ok()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def read_ok(self, count: int = 1) -> None:
        """Read so many OKs and nothing else."""
        data = read_exactly(self.socket, len(OK) * count)
        if data != OK * count:
            raise AssertionError(f"not {count} OKs: {data[:200]!r}")

    def ask(self, command: bytes) -> None:
        """Send one command that is answered OK."""
        self.socket.sendall(command)
        self.read_ok()

    def ask_all(self, commands: Iterable[bytes], deadline_s: float, in_air: int = IN_AIR) -> int:
        """Send some at a time, until the deadline; return how many there were."""
        count = 0
        for piece in pieces(commands, in_air):
            self.socket.sendall(b"".join(piece))
            self.read_ok(len(piece))
            count += len(piece)
            if time.monotonic() > deadline_s:
                break
        return count


def pieces(commands: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield so many at a time."""
    piece: list[bytes] = []
    for command in commands:
        piece.append(command)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece


class Web:
    """An HTTP connection to a broker."""

    def __init__(self, http_address: str) -> None:
        host, port = address_of(http_address)
        self._connection = http.client.HTTPConnection(host, port, timeout=SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def post(self, target: str) -> None:
        """POST; the answer must be 200."""
        self._ask("POST", target)

    def get(self, target: str) -> bytes:
        """GET; the answer must be 200."""
        return self._ask("GET", target)

    def _ask(self, method: str, target: str) -> bytes:
        self._connection.request(method, target)
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == http.client.OK, (method, target, answer.status, body)
        return body


class Crowd:
    """Consumers of one channel in a thread, which read messages and answer none. `keeps_ids`: for `requeue`."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        count: int,
        ready_count: int,
        *,
        keeps_ids: bool = False,
        **settings: Any,
    ) -> None:
        self.sockets: list[socket.socket] = []
        self.received = 0
        self._keeps_ids = keeps_ids
        self._unread: dict[socket.socket, bytearray] = {}
        self._ids: dict[socket.socket, list[bytes]] = {}
        self._selector = selectors.DefaultSelector()
        self._is_over = False
        words = f"SUB {topic} ch\nRDY {ready_count}\n".encode()
        hello = identify(LONG_HEARTBEATS | settings) + words
        for _ in range(count):
            one = socket.create_connection(address_of(broker.tcp), SECONDS_MAX)
            one.sendall(MAGIC_V2 + hello)
            one.setblocking(False)
            self.sockets.append(one)
            self._unread[one], self._ids[one] = bytearray(), []
            self._selector.register(one, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _read(self) -> None:
        while not self._is_over:
            for key, _ in self._selector.select(0.1):
                self._take(key.fileobj)  # type: ignore[arg-type]

    def _take(self, one: socket.socket) -> None:
        try:
            data = one.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(one)
        self.received += len(data)
        if self._keeps_ids:
            self._keep_ids(one, data)

    def _keep_ids(self, one: socket.socket, data: bytes) -> None:
        unread = self._unread[one]
        unread += data
        start = 0
        while len(unread) - start >= 8:
            size, kind = struct.unpack_from(">ii", unread, start)
            if len(unread) - start < 4 + size:
                break
            if kind == MESSAGE:
                self._ids[one].append(bytes(unread[start + ID_AT : start + ID_AT + ID_SIZE]))
            start += 4 + size
        del unread[:start]

    def say(self, command: bytes) -> None:
        """Send the same command from all."""
        for one in self.sockets:
            one.send(command)

    def requeue(self) -> None:
        """Give everything back, and read nothing more."""
        self._stop_reading()
        for one in self.sockets:
            one.setblocking(True)
            one.sendall(b"RDY 0\n" + b"".join(b"REQ %b 0\n" % id_ for id_ in self._ids[one]))

    def _stop_reading(self) -> None:
        self._is_over = True
        self._thread.join()

    def leave(self) -> None:
        """Disconnect all at once."""
        self._stop_reading()
        self._selector.close()
        for one in self.sockets:
            one.close()
        self.sockets = []
