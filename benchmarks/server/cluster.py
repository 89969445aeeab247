"""Many nsqds as an nsqlookupd sees them: one connection each, with topics, half of which all of them have."""

from __future__ import annotations

import http.client
import socket
import time
from typing import TYPE_CHECKING, Self

from nsqfast.wire.protocol import MAGIC_V1
from server.lookupd_protocol import OK, identify, read_exactly, read_identity

if TYPE_CHECKING:
    from server.lookupd import Lookupd

SECONDS_MAX = 120.0


class Cluster:
    """Its constructor registers everything; `seconds` is how long that took."""

    def __init__(self, lookupd: Lookupd, nodes: int, topics: int) -> None:
        self.shared = [f"shared-{number}" for number in range(topics // 2)]
        self._http = lookupd.http
        host, port = lookupd.tcp.split(":")
        self._tcp = (host, int(port))
        self._sockets: list[socket.socket] = []
        commands = [self._commands(node, topics) for node in range(nodes)]
        started_ns = time.perf_counter_ns()
        for command in commands:
            one = socket.create_connection(self._tcp, SECONDS_MAX)
            self._sockets.append(one)
            one.sendall(command)
        for one in self._sockets:
            read_identity(one)
            answers = read_exactly(one, len(OK) * topics)
            if answers != OK * topics:
                raise AssertionError(f"REGISTER was answered {answers!r}")
        self.seconds = (time.perf_counter_ns() - started_ns) / 1e9

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sockets:
            one.close()

    def _commands(self, node: int, topics: int) -> bytes:
        own = [f"own-{node}-{number}" for number in range(topics - len(self.shared))]
        lines = [f"REGISTER {topic}\n" for topic in self.shared + own]
        return MAGIC_V1 + identify(f"10.0.{node >> 8}.{node & 255}") + "".join(lines).encode()

    def lookups(self, count: int) -> list[int]:
        """Return the microseconds of so many GET /lookup over one connection, every second one for a topic that all
        have."""
        host, port = self._http.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS_MAX)
        found = []
        nodes = len(self._sockets)
        for number in range(count):
            shared = self.shared[number % len(self.shared)] if self.shared else "own-0-0"
            topic, producers = (shared, nodes) if number % 2 else (f"own-{number % nodes}-0", 1)
            started_ns = time.perf_counter_ns()
            connection.request("GET", f"/lookup?topic={topic}")
            body = connection.getresponse().read()
            found.append((time.perf_counter_ns() - started_ns) // 1000)
            if body.count(b'"remote_address"') != producers:
                raise AssertionError(f"/lookup?topic={topic}: {body[:200]!r}")
        connection.close()
        return found

    def ask_nodes(self) -> tuple[float, float]:
        """Return the seconds of one GET /nodes, and of the longest PING meanwhile."""
        host, port = self._http.split(":")
        asked = socket.create_connection((host, int(port)), SECONDS_MAX)
        pinged = self._sockets[0]
        asked.sendall(b"GET /nodes HTTP/1.0\r\n\r\n")
        asked.setblocking(False)
        body = bytearray()
        slowest_ns = 0
        started_ns = time.perf_counter_ns()
        while True:
            ping_ns = time.perf_counter_ns()
            pinged.sendall(b"PING\n")
            if read_exactly(pinged, len(OK)) != OK:
                raise AssertionError("PING was not answered")
            slowest_ns = max(slowest_ns, time.perf_counter_ns() - ping_ns)
            if _read_all(asked, body):
                break
        seconds = (time.perf_counter_ns() - started_ns) / 1e9
        asked.close()
        if body.count(b'"remote_address"') != len(self._sockets):
            raise AssertionError(f"/nodes: {bytes(body[:200])!r}")
        return seconds, slowest_ns / 1e9


def _read_all(one: socket.socket, body: bytearray) -> bool:
    """Read what has come; return whether that was all."""
    while True:
        try:
            data = one.recv(1 << 20)
        except BlockingIOError:
            return False
        if not data:
            return True
        body += data
