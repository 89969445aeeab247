"""A separate client that publishes at a steady rate and times each OK: probe.py KIND HOST:PORT

KIND is nsqd (PUB to a topic of its own) or nsqlookupd (PING). A time starts when its command was due, so a broker that
stalls the sender gains nothing by it. The probe prints `ready`, works until its input is closed, and then prints its
figures.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from collections import deque

INTERVAL_NS = 1_000_000
PATIENCE_SECONDS = 120.0
BODY = bytes(100)
# Nobody subscribes, and messages that do not fit into memory are dropped, so it does not grow.
PUB = b"PUB probe#ephemeral\n" + len(BODY).to_bytes(4, "big") + BODY
# First words, command, answer, what else may come, and the reply to that.
KINDS = {
    "nsqd": (b"  V2", PUB, b"\0\0\0\6\0\0\0\0OK", b"\0\0\0\x0f\0\0\0\0_heartbeat_", b"NOP\n"),
    "nsqlookupd": (b"  V1", b"PING\n", b"\0\0\0\2OK", b"", b""),
}
PRIORITY = -10  # if allowed: the probe's own wait for a processor is not the broker's fault


class Probe:
    """One connection; `taken_ns` are the times of all answers."""

    def __init__(self, kind: str, address: str) -> None:
        self._magic, self._command, self._ok, self._heartbeat, self._nop = KINDS[kind]
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(self._magic)
        self._due_ns: deque[int] = deque()
        self._input = b""
        self.taken_ns: list[int] = []
        self.is_dropped = False

    def work(self) -> None:
        """Run until standard input is closed, and then until the last answer."""
        next_ns = time.monotonic_ns()
        while not self.is_dropped:
            now_ns = time.monotonic_ns()
            while next_ns <= now_ns:
                self._due_ns.append(next_ns)
                self._send(self._command)
                next_ns += INTERVAL_NS
            wait_s = max(0, next_ns - time.monotonic_ns()) / 1e9
            readable, _, _ = select.select([self._socket, sys.stdin], [], [], wait_s)
            if self._socket in readable:
                self._read()
            if sys.stdin in readable:
                break
        self._socket.settimeout(PATIENCE_SECONDS)
        while self._due_ns and not self.is_dropped:
            self._read()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            self.is_dropped = True

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.is_dropped = True
        now_ns = time.monotonic_ns()
        self._input += data
        while len(self._input) >= len(self._ok):
            if self._input.startswith(self._ok):
                self._input = self._input[len(self._ok) :]
                self.taken_ns.append(now_ns - self._due_ns.popleft())
            elif self._heartbeat and self._input.startswith(self._heartbeat):
                self._input = self._input[len(self._heartbeat) :]
                self._send(self._nop)
            elif self._heartbeat.startswith(self._input):
                return
            else:
                raise AssertionError(f"not an answer: {self._input[:100]!r}")

    def figures(self) -> dict[str, float]:
        """Return microseconds; a command never answered counts as waiting until now."""
        now_ns = time.monotonic_ns()
        taken = sorted(self.taken_ns + [now_ns - due_ns for due_ns in self._due_ns])
        return {
            "probe_p50_us": taken[len(taken) // 2] / 1000,
            "probe_p99_us": taken[len(taken) * 99 // 100] / 1000,
            "probe_worst_us": taken[-1] / 1000,
            "probe_dropped": float(self.is_dropped),
        }


if __name__ == "__main__":
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    probe = Probe(*sys.argv[1:])
    print("ready", flush=True)
    probe.work()
    print(json.dumps(probe.figures()))
