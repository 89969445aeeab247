"""Peeks at a long queue, as many nsqadmin pages would make them: over HTTP, repeatedly."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from server.generators import nsqfast_bench

if TYPE_CHECKING:
    from server.broker import Broker

QUEUE, CHANNEL = "peeked", "ch"
SIZE = 200
PAGE = 20
# Pages requested in turn: the front, as deep as possible, and a search that finds nothing.
FRONT = ""
PAGES = (FRONT, "&offset=10000", "&filter=nowhere")
SECONDS_MAX = 60.0
HOUR_MS = 3_600_000


def fill(broker: Broker, count: int, is_deferred: bool) -> None:
    """Put so many messages into a topic of its own."""
    broker.create(QUEUE, (CHANNEL,))
    flags = [f"--topic={QUEUE}", f"--count={count}", f"--size={SIZE}", "--runfor=60s"]
    flags += ["--batch-size=1", f"--defer-ms={HOUR_MS}", "--in-air=100"] if is_deferred else []
    nsqfast_bench(broker.tcp, "pub", *flags)
    broker.wait_queued(QUEUE, count)


class Viewer:
    """One connection, which requests pages of that state."""

    def __init__(self, broker: Broker, state: str) -> None:
        host, port = broker.http.split(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS_MAX)
        self._query = f"topic={QUEUE}&channel={CHANNEL}"
        self._target = f"/channel/peek?{self._query}&state={state}&limit={PAGE}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def peek(self, page: str) -> tuple[dict[str, Any], float]:
        """Return what is shown, and the microseconds until it was there."""
        body, taken_us = self._ask("GET", self._target + page)
        return json.loads(body), taken_us

    def cancel(self, identity: str) -> float:
        """Drop a deferred message; return microseconds."""
        return self._ask("POST", f"/channel/deferred/cancel?{self._query}&id={identity}")[1]

    def _ask(self, method: str, target: str) -> tuple[bytes, float]:
        begun_ns = time.perf_counter_ns()
        self._connection.request(method, target)
        response = self._connection.getresponse()
        body = response.read()
        taken_us = (time.perf_counter_ns() - begun_ns) / 1000
        assert response.status == http.client.OK, (target, response.status, body)
        return body, taken_us


class Crowd:
    """A thread that requests every page in turn, at a fixed pace, until the block ends; `count` is how often."""

    def __init__(self, broker: Broker, state: str, pause_seconds: float) -> None:
        self.count = 0
        self._viewer = Viewer(broker, state)
        self._pause_seconds = pause_seconds
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        with self._viewer as viewer:
            while not self._is_over.wait(self._pause_seconds):
                viewer.peek(PAGES[self.count % len(PAGES)])
                self.count += 1
