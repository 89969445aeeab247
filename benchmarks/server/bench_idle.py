"""The cost of a large but idle broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.idle import NO_HEARTBEATS, Crowd, cpu_percent, write_metadata
from server.scenario import NOTHING, OTHER, Row, at_most
from server.usage import cpu_ns, resident_bytes

if TYPE_CHECKING:
    from server.broker import Broker
    from server.duel import Duel, Samples, Start

TOPICS = 10_000
CONNECTIONS = 5_000
IDLE_SECONDS = 3.0
SETTLE_SECONDS = 0.5  # for what a broker does after a connect
NS_PER_PERCENT = 1e7  # of CPU time in a second
HEARTBEATS = {"no heartbeats": NO_HEARTBEATS, "a heartbeat each second": 1000}


def bench_idle_topics(duel: Duel) -> None:
    """Ten thousand topics with a channel each, and no clients."""
    topics = duel.scale.count(TOPICS)
    row = Row(
        f"{topics:,} idle topics", "none", NOTHING, OTHER, (at_most("cpu_percent", 1.0, "<"),)
    )

    def measure(broker: Broker) -> Samples:
        share = cpu_percent(broker.pid, duel.scale.seconds(IDLE_SECONDS))
        return {row: {"cpu_percent": share, "rss_bytes": float(resident_bytes(broker.pid))}}

    # NSQ's default size of memory queues: nobody has ten thousand topics with larger ones.
    duel.run(measure, flags=(), prepare=lambda folder: write_metadata(folder, topics))


@pytest.mark.parametrize("heartbeats", HEARTBEATS)
def bench_idle_connections(duel: Duel, heartbeats: str) -> None:
    """Five thousand clients that sent IDENTIFY. A second is the shortest heartbeat, the default is 30."""
    connections = duel.scale.count(CONNECTIONS)
    row = Row(f"{connections:,} idle connections, {heartbeats}", "none", NOTHING, OTHER)
    seconds = max(duel.scale.seconds(IDLE_SECONDS), HEARTBEATS[heartbeats] / 1000 + 0.5)

    def measure(start: Start) -> Samples:
        # A new one each time: memory that an earlier crowd left behind would be reused.
        with start() as broker:
            before_bytes = resident_bytes(broker.pid)
            with Crowd(broker.tcp, connections, HEARTBEATS[heartbeats]) as crowd:
                crowd.keep_alive(SETTLE_SECONDS)
                used_bytes = resident_bytes(broker.pid) - before_bytes
                before_ns = cpu_ns(broker.pid)
                crowd.keep_alive(seconds)
                used_ns = cpu_ns(broker.pid) - before_ns
                assert bool(crowd.heartbeats) == (HEARTBEATS[heartbeats] != NO_HEARTBEATS)
        return {
            row: {
                "cpu_percent": used_ns / NS_PER_PERCENT / seconds,
                "bytes_per_connection": used_bytes / connections,
            }
        }

    duel.run_fresh(measure)
