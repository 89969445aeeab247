"""nsqadmin with a hundred simulated nsqd and twenty viewers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from server.duel import Results
from server.scenario import NOTHING, OTHER, Row, at_most
from server.usage import cpu_ns, resident_bytes
from server.viewers import Viewers, nsqadmin
from support.simulated_cluster import SimulatedCluster

if TYPE_CHECKING:
    from server.scenario import Scale

NODES = 100
TOPICS = 500
VIEWERS = 20
SECONDS = 60.0
WARM_UP_SECONDS = 10.0  # until memory is what it stays
NS_PER_PERCENT = 1e7  # of CPU time in a second
TARGETS = (at_most("cpu_percent", 10.0, "<"), at_most("rss_growth_bytes", 16 << 20))
PAGES = ("/topics", "/topics?sort=-depth", "/topics?q=topic-00")


@pytest.mark.parametrize("channels", [1, 3])
def bench_admin_live(benchmark: Any, scale: Scale, channels: int) -> None:
    """Go's nsqadmin asks the cluster anew for each page, so there is nothing to compare with."""
    nodes, topics = scale.count(NODES), scale.count(TOPICS)
    row = Row(
        f"nsqadmin: {nodes} nsqd with {topics} topics of {channels} channels, {VIEWERS} viewers",
        "none",
        NOTHING,
        OTHER,
        TARGETS,
    )
    results = Results()

    def one_round() -> None:
        with (
            SimulatedCluster(nodes, topics, channels) as cluster,
            nsqadmin(cluster.lookupds) as server,
        ):
            results.add("nsqfast", {row: asyncio.run(measure(server.process.pid, server))})

    async def measure(pid: int, server: Any) -> dict[str, float]:
        viewers = Viewers(server, [PAGES[n % len(PAGES)] for n in range(VIEWERS)])
        await viewers.wait_for_nodes(nodes)
        await viewers.look(scale.seconds(WARM_UP_SECONDS))
        before_ns, before_bytes = cpu_ns(pid), resident_bytes(pid)
        seconds = scale.seconds(SECONDS)
        seen = await viewers.look(seconds)
        used_ns = cpu_ns(pid) - before_ns
        pings, live = sorted(seen.pings), sorted(seen.live)
        return {
            "cpu_percent": used_ns / NS_PER_PERCENT / seconds,
            "ticks_per_minute": 60 * len(seen.ticks) / seconds,
            "live_p50_us": live[len(live) // 2] * 1e6,
            "ping_p99_us": pings[len(pings) * 99 // 100] * 1e6,
            "ping_max_us": pings[-1] * 1e6,
            "rss_bytes": float(resident_bytes(pid)),
            "rss_growth_bytes": float(resident_bytes(pid) - before_bytes),
        }

    benchmark.pedantic(one_round, rounds=scale.rounds, iterations=1)
    benchmark.extra_info.update(results.as_json())
