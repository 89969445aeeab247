"""An nsqlookupd for tests that keeps what it is told, and can be slow, silent or wrong."""

from __future__ import annotations

import contextlib
import gzip
import json
import queue
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

from support.strict_http import StrictHTTPServer

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS_MAX = 50
OK = b"OK"


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class FakeLookupd:
    """`told` gets the command lines, ("IDENTIFY", body) for that one, and None at the end of a connection."""

    def __init__(self, broadcast_address: str = "127.0.0.1") -> None:
        self.told: queue.Queue[Any] = queue.Queue()
        self.channels: dict[str, list[str]] = {}
        self.may_answer = threading.Event()  # /channels waits for it
        self.may_answer.set()
        self.is_packed = False  # what /channels answers
        self.redirect = ""  # where /channels leads instead
        self.asked: queue.Queue[tuple[str, dict[str, str]]] = queue.Queue()
        self.answer: Callable[[bytes], bytes | None] = lambda _line: framed(OK)
        self._broadcast_address = broadcast_address
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._http = StrictHTTPServer(("127.0.0.1", 0), self._handler())
        self._threads = [
            threading.Thread(target=self._accept, daemon=True),
            threading.Thread(target=self._http.serve_forever, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.may_answer.set()
        # The one who accepts has to be woken first.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        self._http.shutdown()
        self._http.server_close()

    def drop(self) -> None:
        """End all connections."""
        while self._connections:
            connection = self._connections.pop()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def next(self) -> Any:
        return self.told.get(timeout=SECONDS_MAX)

    def commands(self, count: int) -> list[Any]:
        """The next ones, keep-alives apart."""
        found: list[Any] = []
        silent_at_s = time.monotonic() + SECONDS_MAX
        while len(found) < count:
            told = self.told.get(timeout=max(0.0, silent_at_s - time.monotonic()))
            if told != b"PING":
                silent_at_s = time.monotonic() + SECONDS_MAX
                found.append(told)
        return found

    def identity(self) -> dict[str, Any]:
        """What the next connection begins with."""
        name, body = self.next()
        assert name == "IDENTIFY"
        return json.loads(body)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                if stream.read(4) == b"  V1":
                    self._converse(connection, stream)
            except OSError:
                pass
        self.told.put(None)

    def _converse(self, connection: socket.socket, stream: Any) -> None:
        while line := stream.readline().rstrip(b"\n"):
            answer = self.answer(line)
            if line == b"IDENTIFY":
                (size,) = struct.unpack(">i", stream.read(4))
                self.told.put(("IDENTIFY", stream.read(size)))
                if answer == framed(OK):
                    answer = framed(json.dumps(self._identity()).encode())
            else:
                self.told.put(line)
            if answer is not None:
                connection.sendall(answer)

    def _identity(self) -> dict[str, Any]:
        return {
            "tcp_port": self._listener.getsockname()[1],
            "http_port": self._http.server_address[1],
            "version": "1.3.0",
            "broadcast_address": self._broadcast_address,
            "hostname": "fake",
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        lookupd = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                lookupd.asked.put((self.path, dict(self.headers)))
                assert lookupd.may_answer.wait(SECONDS_MAX)
                topic = parse_qs(urlsplit(self.path).query)["topic"][0]
                body = json.dumps({"channels": lookupd.channels.get(topic, [])}).encode()
                if lookupd.redirect:
                    self.send_response(302)
                    self.send_header("Location", lookupd.redirect)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(200)
                if lookupd.is_packed:
                    body = gzip.compress(body)
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Type", "application/json; charset=utf-8")
                self.send_header("X-NSQ-Content-Type", "nsq; version=1.0")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
