"""A broker under test: a process on free ports of 127.0.0.1, with its data in a folder of its own."""

from __future__ import annotations

import http.client
import json
import secrets
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from server.implementation import ROOT, Implementation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

START_TRIES_MAX = 5
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
ARRIVAL_SECONDS_MAX = 60.0
POLL_SECONDS = 0.005
CONNECT_POLL_SECONDS = 0.0005
MEM_QUEUE_SIZE_DEFAULT = 10_000
LOG_FILE = "broker.log"


class PortTakenError(Exception):
    """Another process was faster with a port that had been free."""


class Broker:
    """Started by its constructor, and serving when that returns."""

    is_endless = False  # it delivers no more messages than it received

    def __init__(
        self, implementation: Implementation, folder: Path, flags: tuple[str, ...]
    ) -> None:
        self.name = implementation.name
        self.folder = folder
        self.mem_queue_size = mem_queue_size(flags)
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(START_TRIES_MAX):
            try:
                self._start(implementation, flags)
            except PortTakenError:
                continue
            return
        raise RuntimeError(f"{self.name}: no free port in {START_TRIES_MAX} tries")

    def _start(self, implementation: Implementation, flags: tuple[str, ...]) -> None:
        tcp_port, http_port = free_ports(2)
        self._mark = f"bench-{secrets.token_hex(8)}"
        self.tcp = f"127.0.0.1:{tcp_port}"
        self.http = f"127.0.0.1:{http_port}"
        command = [
            *implementation.command,
            f"--tcp-address={self.tcp}",
            f"--http-address={self.http}",
            f"--broadcast-address={self._mark}",
            *self._data_flags(),
            "--log-level=error",
            *flags,
        ]
        with (self.folder / LOG_FILE).open("wb") as log:
            self._started_ns = time.monotonic_ns()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT
            )
        self.pid = self._process.pid
        self._wait_until_serving()

    def _wait_until_serving(self) -> None:
        """Poll the port, because a quiet log does not name one; the connection then waits for its answer."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._complain_of_start()
            try:
                self._request("GET", "/ping")
            except OSError:
                time.sleep(CONNECT_POLL_SECONDS)
                continue
            self.startup_seconds = (time.monotonic_ns() - self._started_ns) / 1e9
            if self._announced() == self._mark:
                return
            # Another process has that port and answers; ours is about to find out.
        self.kill()
        raise RuntimeError(f"{self.name} does not listen after {START_SECONDS_MAX} s")

    def _data_flags(self) -> list[str]:
        return [f"--data-path={self.folder}"]

    def _announced(self) -> str:
        """Return the broadcast address of the process that serves on our ports."""
        return str(json.loads(self._request("GET", "/info"))["broadcast_address"])

    def _complain_of_start(self) -> None:
        said = (self.folder / LOG_FILE).read_text(encoding="utf-8", errors="replace")
        if "address already in use" in said:
            raise PortTakenError
        raise RuntimeError(f"{self.name} did not start:\n{said}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def stop(self) -> None:
        """Stop as a supervisor does; what is left in memory goes to disk."""
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"{self.name} did not stop in {STOP_SECONDS_MAX} s") from None
        if status:
            log = (self.folder / LOG_FILE).read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{self.name} ended with status {status}:\n{log}")

    def kill(self) -> None:
        """Kill it in any state."""
        self._process.kill()
        self._process.wait()

    # ---- administration over HTTP

    def _request(self, method: str, target: str, content: bytes | None = None) -> bytes:
        host, port = self.http.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=START_SECONDS_MAX)
        try:
            connection.request(method, target, content)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{self.name}: {method} {target}: {response.status} {body!r}")
        return body

    def create(self, topic: str, channels: tuple[str, ...]) -> None:
        """Create a topic with channels, all empty."""
        self._request("POST", f"/topic/create?topic={topic}")
        for channel in channels:
            self._request("POST", f"/channel/create?topic={topic}&channel={channel}")

    def delete(self, topic: str) -> None:
        """Delete the topic with everything in it, in memory and on disk."""
        self._request("POST", f"/topic/delete?topic={topic}")

    @contextmanager
    def policy(self, definition: dict[str, Any]) -> Iterator[None]:
        """Have a policy that holds for everything; Go's has none."""
        content = json.dumps({"definition": definition}).encode()
        self._request("PUT", "/policies/bench", content)
        yield
        self._request("DELETE", "/policies/bench")

    def redrive(self, topic: str, channel: str) -> dict[str, Any]:
        """Send back what died in the channel; return how that went."""
        target = f"/channel/redrive?topic={topic}&channel={channel}"
        self._request("POST", target)
        deadline = time.monotonic() + ARRIVAL_SECONDS_MAX
        while (order := json.loads(self._request("GET", target)))["state"] == "running":
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name}: it does not end: {order}")
            time.sleep(POLL_SECONDS)
        return order

    def stats(self, topic: str) -> dict[str, Any]:
        """Return the counters of one topic."""
        target = f"/stats?format=json&include_clients=false&include_mem=false&topic={topic}"
        found: list[dict[str, Any]] = json.loads(self._request("GET", target))["topics"]
        return found[0]

    def wait_for(self, topic: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the topic's counters once they are as wanted; Go's reach their channels a little later."""
        deadline = time.monotonic() + ARRIVAL_SECONDS_MAX
        while not wanted(found := self.stats(topic)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name}: messages are missing: {found}")
            time.sleep(POLL_SECONDS)
        return found

    def wait_queued(self, topic: str, messages: int) -> None:
        """Wait until every channel has exactly so many messages, whether deferred or not."""
        self.wait_for(
            topic,
            lambda found: (
                found["message_count"] == messages
                and not found["depth"]
                and all(c["depth"] + c["deferred_count"] == messages for c in found["channels"])
            ),
        )

    def wait_taken(self, topic: str) -> int:
        """Wait until every channel has everything that was published; return how many messages that is."""
        found = self.wait_for(
            topic,
            lambda found: all(c["depth"] == found["message_count"] for c in found["channels"]),
        )
        return int(found["message_count"])

    def wait_left(self, topic: str, published: int, left: int) -> None:
        """Wait until exactly so many deliveries are left in all channels, in whichever state."""
        states = ("depth", "in_flight_count", "deferred_count")
        self.wait_for(
            topic,
            lambda found: (
                found["message_count"] == published
                and not found["depth"]
                and sum(channel[state] for channel in found["channels"] for state in states) == left
            ),
        )

    def wait_finished(self, topic: str) -> None:
        """Wait until nothing is left: not queued, not in flight, not deferred."""
        left = ("depth", "in_flight_count", "deferred_count")
        self.wait_for(
            topic,
            lambda found: (
                not found["depth"]
                and not any(channel[name] for channel in found["channels"] for name in left)
            ),
        )


def mem_queue_size(flags: tuple[str, ...]) -> int:
    """Return the value of --mem-queue-size, or NSQ's default."""
    sizes = [flag.partition("=")[2] for flag in flags if flag.startswith("--mem-queue-size=")]
    return int(sizes[-1]) if sizes else MEM_QUEUE_SIZE_DEFAULT


def free_ports(count: int) -> list[int]:
    """Return ports without a listener at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
