"""Peeking at waiting messages, and what that costs others. Go's nsqd has no such endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.implementation import NSQFAST
from server.loads import latency
from server.peeks import FRONT, PAGE, PAGES, Crowd, Viewer, fill
from server.scenario import MEMORY, OTHER, PAGE_CACHE, Row, at_most

if TYPE_CHECKING:
    from server.broker import Broker
    from server.duel import Duel, Samples, Start
    from server.loads import Sample

MESSAGES = 1_000_000
DEFERRED = 100_000
LOOKS = 300
RATE = 5000
SECONDS = 3.0
PAUSE_SECONDS = 0.05
TIMEOUT_MS = 1
FLAGS = "--min-output-buffer-timeout=1ms"
TARGETS = (at_most("peek_p99_us", 20_000), at_most("others_p99_us", 5000))
# Where the messages are: their number, flags, and what is requested.
QUEUES = {
    "memory": (MESSAGES, "--mem-queue-size=2000000", "ready"),
    "disk": (MESSAGES, "--mem-queue-size=0", "ready"),
    "deferred": (DEFERRED, "--mem-queue-size=2000000", "deferred"),
}


@pytest.mark.parametrize("where", QUEUES)
def bench_peek(duel: Duel, where: str) -> None:
    """The first messages, those deep in the queue, and a filter; then a steady load with peeks beside it."""
    count, memory, state = QUEUES[where]
    count = duel.scale.count(count)
    durability = PAGE_CACHE if where == "disk" else MEMORY
    row = Row(f"peek, {PAGE} of {count:,} ({where})", "none", durability, OTHER, TARGETS)
    looks = duel.scale.count(LOOKS)
    seconds = duel.scale.seconds(SECONDS)

    def measure(start: Start) -> Samples:
        broker = start(memory, FLAGS)
        try:
            if broker.name != NSQFAST:
                return {row: None}
            fill(broker, count, state == "deferred")
            return {row: look(broker, state, looks) | disturb(broker, state, seconds)}
        finally:
            # An orderly stop would write all of it to disk.
            broker.kill()

    duel.run_fresh(measure)


def look(broker: Broker, state: str, count: int) -> Sample:
    """Peek at one page after the other, without other clients."""
    taken: dict[str, list[float]] = {page: [] for page in PAGES}
    cancelled = []
    with Viewer(broker, state) as viewer:
        for page in PAGES:
            for _ in range(count):
                found, taken_us = viewer.peek(page)
                assert len(found["messages"]) in (0, PAGE), found
                taken[page].append(taken_us)
        if state == "deferred":
            shown = viewer.peek(FRONT)[0]["messages"]
            cancelled = [viewer.cancel(message["id"]) for message in shown]
    sample = {
        "peek_p50_us": percentile(taken[FRONT], 50),
        "peek_p99_us": percentile(taken[FRONT], 99),
        "peek_deep_p50_us": percentile(taken[PAGES[1]], 50),
        "peek_filter_p50_us": percentile(taken[PAGES[2]], 50),
    }
    return sample | ({"cancel_p50_us": percentile(cancelled, 50)} if cancelled else {})


def disturb(broker: Broker, state: str, seconds: float) -> Sample:
    """Measure how long others wait: without peeks, and with twenty of them a second."""
    calm = latency(broker, RATE, seconds, TIMEOUT_MS)
    with Crowd(broker, state, PAUSE_SECONDS) as crowd:
        others = latency(broker, RATE, seconds, TIMEOUT_MS)
    assert crowd.count > 0
    return {"calm_p99_us": calm["p99_us"], "others_p99_us": others["p99_us"]}


def percentile(values: list[float], percent: int) -> float:
    """Return the value that so many percent do not exceed."""
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]
