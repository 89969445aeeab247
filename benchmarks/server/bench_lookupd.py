"""A thousand nsqds at one nsqlookupd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.cluster import Cluster
from server.scenario import NOTHING, OTHER, Row, at_most
from server.usage import resident_bytes

if TYPE_CHECKING:
    from server.duel import Duel, Samples
    from server.lookupd import Lookupd

NODES = 1000
TOPICS = 100
LOOKUPS = 1000
TARGETS = (
    at_most("lookup_p99_us", 5000),
    at_most("nodes_seconds", 1.0),
    at_most("ping_max_us", 50_000),
)


def bench_lookupd(duel: Duel) -> None:
    """A hundred topics each, half of which all of them have, and a client that asks for one after the other."""
    nodes = duel.scale.count(NODES)
    row = Row(f"nsqlookupd: {nodes:,} nsqd with {TOPICS} topics", "none", NOTHING, OTHER, TARGETS)

    def measure(lookupd: Lookupd) -> Samples:
        with Cluster(lookupd, nodes, TOPICS) as cluster:
            taken_us = sorted(cluster.lookups(duel.scale.count(LOOKUPS)))
            nodes_seconds, ping_seconds = cluster.ask_nodes()
            return {
                row: {
                    "register_seconds": cluster.seconds,
                    "lookup_p50_us": float(taken_us[len(taken_us) // 2]),
                    "lookup_p99_us": float(taken_us[len(taken_us) * 99 // 100]),
                    "nodes_seconds": nodes_seconds,
                    "ping_max_us": ping_seconds * 1e6,
                    "rss_bytes": float(resident_bytes(lookupd.pid)),
                }
            }

    duel.run_lookupd(measure)
