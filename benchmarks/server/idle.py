"""Large but idle brokers: topics created by metadata, connections that only keep alive."""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from nsqfast.wire.protocol import MAGIC_V2
from server.usage import cpu_ns

if TYPE_CHECKING:
    from pathlib import Path

METADATA_FILE = "nsqd.dat"
NSQD_VERSION = "1.3.0"
CHANNEL = "ch"
NOP = b"NOP\n"
OK_FRAME = struct.pack(">ii", 6, 0) + b"OK"
HEARTBEAT_FRAME = struct.pack(">ii", 15, 0) + b"_heartbeat_"
NO_HEARTBEATS = -1
CONNECT_SECONDS_MAX = 30.0
CONNECTS_PER_ANSWER = 100  # a slow machine connects thousands for longer than a heartbeat may wait
INPUT_SIZE = 4096
PERCENT = 100.0


def write_metadata(folder: Path, topics: int) -> None:
    """Write an nsqd.dat with so many topics of one channel each."""
    entries = [
        {
            "name": f"topic{number:05}",
            "paused": False,
            "channels": [{"name": CHANNEL, "paused": False}],
        }
        for number in range(topics)
    ]
    text = json.dumps({"topics": entries, "version": NSQD_VERSION}, separators=(",", ":"))
    (folder / METADATA_FILE).write_text(text, encoding="ascii")


def cpu_percent(pid: int, seconds: float) -> float:
    """Return the share of one core that an idle process uses."""
    before_ns, started_ns = cpu_ns(pid), time.monotonic_ns()
    time.sleep(seconds)
    used_ns, passed_ns = cpu_ns(pid) - before_ns, time.monotonic_ns() - started_ns
    return PERCENT * used_ns / passed_ns


class Crowd:
    """Connections that have sent IDENTIFY and answer heartbeats while `keep_alive` runs."""

    def __init__(self, tcp: str, count: int, heartbeat_ms: int) -> None:
        host, port = tcp.split(":")
        self.heartbeats = 0
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        for number in range(count):
            one = _identified((host, int(port)), heartbeat_ms)
            self._sockets.append(one)
            self._selector.register(one, selectors.EVENT_READ)
            if number % CONNECTS_PER_ANSWER == 0:
                self._answer_all(0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for one in self._sockets:
            one.close()

    def keep_alive(self, seconds: float) -> None:
        """Answer every heartbeat for so long; an error if the broker ends a connection."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._answer_all(left)

    def _answer_all(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            self._answer(key.fileobj)  # type: ignore[arg-type]

    def _answer(self, one: socket.socket) -> None:
        with suppress(BlockingIOError):
            data = one.recv(INPUT_SIZE)
            beats, rest = divmod(len(data), len(HEARTBEAT_FRAME))
            if not data or rest or data != HEARTBEAT_FRAME * beats:
                raise AssertionError(f"not a heartbeat: {data!r}")
            self.heartbeats += beats
            one.sendall(NOP * beats)


def _identified(address: tuple[str, int], heartbeat_ms: int) -> socket.socket:
    one = socket.create_connection(address, CONNECT_SECONDS_MAX)
    settings = json.dumps({"client_id": "idle", "heartbeat_interval": heartbeat_ms}).encode()
    one.sendall(MAGIC_V2 + b"IDENTIFY\n" + struct.pack(">i", len(settings)) + settings)
    answer = one.recv(len(OK_FRAME), socket.MSG_WAITALL)
    if answer != OK_FRAME:
        raise AssertionError(f"IDENTIFY was answered {answer!r}")
    one.setblocking(False)
    return one
