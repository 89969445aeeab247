"""From publish to receive at a fixed rate, counted from the moment each message was due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.duel import MEMORY_FLAGS
from server.generators import NSQFAST_BENCH
from server.loads import latency
from server.scenario import LATENCY, MEMORY, Row, Target

if TYPE_CHECKING:
    from server.duel import Duel

RATE = 5000
SECONDS = 3.0
TARGETS = (Target("p50_us", "<=", 0.15), Target("p99_us", "<=", 0.15))
# None: what a client gets that requests nothing, 250 ms. A broker with NSQ's defaults grants 25 ms at least.
TIMEOUTS = {"1 ms": (1, ()), "25 ms": (25, TARGETS), "NSQ's default, 250 ms": (None, TARGETS)}


@pytest.mark.parametrize("timeout", TIMEOUTS)
def bench_latency(duel: Duel, timeout: str) -> None:
    """The same client settings for both brokers."""
    name = f"{RATE:,} msg/s, output buffer timeout {timeout}"
    timeout_ms, targets = TIMEOUTS[timeout]
    row = Row(name, NSQFAST_BENCH, MEMORY, LATENCY, targets)
    seconds = duel.scale.seconds(SECONDS)
    duel.run(
        lambda broker: {row: latency(broker, RATE, seconds, timeout_ms)},
        (*MEMORY_FLAGS, "--min-output-buffer-timeout=1ms"),
    )
