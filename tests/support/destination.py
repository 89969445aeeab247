"""An HTTP server for nsq_to_http: it keeps what it is asked, and answers as a test wants it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

SECONDS_MAX = 50


class Request(NamedTuple):
    method: str
    path: str
    headers: tuple[str, ...]  # lines, in their order
    body: bytes

    def header(self, name: str) -> str | None:
        for line in self.headers:
            key, _, value = line.partition(": ")
            if key.lower() == name.lower():
                return value
        return None


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Caller:
    """One connection."""

    def __init__(self, peer: socket.socket, server: Destination) -> None:
        self.peer = peer
        self.server = server

    def say(self, data: bytes) -> None:
        self.peer.sendall(data)

    def hang_up(self) -> None:
        self.peer.shutdown(socket.SHUT_RDWR)

    def hang(self) -> None:
        """Say nothing until the server ends."""
        self.server.ended.wait(SECONDS_MAX)


class Destination:
    """`conduct` is called with each request; what it returns, if anything, is written. Its default says yes."""

    def __init__(
        self,
        conduct: Callable[[Caller, Request], bytes | None] | None = None,
        context: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.conduct = conduct or (lambda _caller, _request: answer(200))
        self.requests: list[Request] = []
        self.connections = 0
        self.ended = threading.Event()
        self._context = context
        self._changed = threading.Condition()
        self._peers: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self.hang_up_all()
        for thread in self._threads:
            thread.join(SECONDS_MAX)
        self._socket.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def hang_up_all(self) -> None:
        """Close every connection, as a server does that restarts."""
        for peer in list(self._peers):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self.ended.is_set():
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.add(peer)
            self._start(self._serve, peer)

    def _serve(self, peer: socket.socket) -> None:
        try:
            if self._context is not None:
                self._peers.discard(peer)
                peer = self._context.wrap_socket(peer, server_side=True)
                self._peers.add(peer)
            with peer, peer.makefile("rb") as file:
                caller = Caller(peer, self)
                while (request := read_request(file)) is not None:
                    with self._changed:
                        self.requests.append(request)
                        self._changed.notify_all()
                    if said := self.conduct(caller, request):
                        peer.sendall(said)
        except OSError:
            pass
        finally:
            self._peers.discard(peer)

    def wait_for(self, is_there: Callable[[list[Request]], object]) -> list[Request]:
        """The requests so far, once that holds of them."""
        with self._changed:
            found = self._changed.wait_for(lambda: is_there(self.requests), SECONDS_MAX)
            assert found, f"not in {SECONDS_MAX} s: {len(self.requests)} {self.requests[-5:]}"
            return list(self.requests)

    def wait_for_count(self, count: int) -> list[Request]:
        return self.wait_for(lambda requests: len(requests) >= count)

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]


def read_request(file: object) -> Request | None:
    """None at the end."""
    first = file.readline().decode().split(" ")
    if len(first) != 3:
        return None
    headers = []
    size = 0
    while (line := file.readline().decode("latin-1").rstrip("\r\n")) != "":
        headers.append(line)
        if line.lower().startswith("content-length:"):
            size = int(line.partition(":")[2])
    body = file.read(size)
    return Request(first[0], first[1], tuple(headers), body) if len(body) == size else None
