"""An nsqadmin under test, and its clients."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Self

from server.implementation import ROOT, Implementation
from server.usage import cpu_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

STOP_SECONDS_MAX = 60.0
TIMEOUT_SECONDS = 300.0
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
END_OF_CHUNKS = b"\r\n0\r\n\r\n"
WELL = b'"message":""}'
TAIL_SIZE = 64  # of an answer: more than the above
LISTENING = re.compile(rb"HTTP: listening on (\S+:\d+)")
# A node that is slow because all are queried at once must not make an answer cheap.
PATIENCE = ("--http-client-request-timeout=5m", "--http-client-connect-timeout=1m")


class Admin:
    """Started by its constructor, and serving when that returns."""

    def __init__(self, implementation: Implementation, flags: Sequence[str]) -> None:
        self.name = implementation.name
        command = [*implementation.command, "--http-address=127.0.0.1:0", *PATIENCE, *flags]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT
        )
        self.pid = self._process.pid
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := LISTENING.search(line):
                self.http = found[1].decode()
                break
        else:
            raise RuntimeError(f"{self.name} did not start")
        # A pipe that nobody reads would block it.
        self._reader = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(STOP_SECONDS_MAX)
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def ask(self, path: str, connections: int, seconds: float) -> dict[str, float]:
        """Send requests one after the other on each connection, at least once each."""
        taken_ns: list[int] = []
        deadline = time.monotonic() + seconds

        def ask_again() -> None:
            with Asking(self.http, path) as asking:
                while True:
                    begun_ns = time.monotonic_ns()
                    asking.ask()
                    taken_ns.append(time.monotonic_ns() - begun_ns)
                    if time.monotonic() > deadline:
                        break

        begun_ns, cpu_before_ns = time.monotonic_ns(), cpu_ns(self.pid)
        threads = [threading.Thread(target=ask_again) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent_ns, passed_ns = cpu_ns(self.pid) - cpu_before_ns, time.monotonic_ns() - begun_ns
        taken_ns.sort()
        return {
            "rate": len(taken_ns) / passed_ns * 1e9,
            "p50_us": taken_ns[len(taken_ns) // 2] / 1e3,
            "broker_cpu_us": spent_ns / len(taken_ns) / 1e3,
        }


class Asking:
    """Sends the same request again and again over one connection.

    Not with http.client, which takes 100 µs for each: as long as some of the answers.
    """

    def __init__(self, address: str, path: str) -> None:
        host, _, port = address.rpartition(":")
        self._what = f"{address}{path}"
        self._request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self) -> None:
        """Read the whole answer; RuntimeError if it is an error."""
        self._socket.sendall(self._request)
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, last = received.partition(b"\r\n\r\n")
        chunked = b"transfer-encoding: chunked" in head.lower()
        left = 0 if chunked else int(LENGTH.findall(head)[0]) - len(last)
        last = last[-TAIL_SIZE:]
        while left > 0 or (chunked and not last.endswith(END_OF_CHUNKS)):
            piece = self._receive()
            left -= len(piece)
            last = (last + piece[-TAIL_SIZE:])[-TAIL_SIZE:]
        if not head.startswith(b"HTTP/1.1 200 ") or WELL not in last:
            raise RuntimeError(f"{self._what}: {head[:100]!r} {last!r}")

    def _receive(self) -> memoryview:
        size = self._socket.recv_into(self._buffer)
        if size == 0:
            raise RuntimeError(f"{self._what}: closed")
        return memoryview(self._buffer)[:size]
