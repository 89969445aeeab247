"""nsqadmin's list of 5,000 topics: searched, sorted by each column, and its last page."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import aiohttp

from server.duel import Results
from server.scenario import NOTHING, OTHER, Row, at_most
from server.viewers import nsqadmin
from support.simulated_cluster import SimulatedCluster

if TYPE_CHECKING:
    from server.scenario import Scale

NODES, TOPICS, CHANNELS = 2, 5000, 1
TIMES = 20  # each address
START_SECONDS_MAX = 60.0
COLUMNS = "name depth in out oldest in_flight channels consumers".split()
PATHS = (
    "/topics",
    "/topics?page=50",
    "/topics?q=topic-00",
    "/topics?q=depth>0+no:consumers",
    *(f"/topics?sort=-{column}" for column in COLUMNS),
)
TARGETS = (at_most("page_p99_us", 200_000.0, "<"),)


def bench_admin_pages(benchmark: Any, scale: Scale) -> None:
    """The whole answer, as HTML. Go's nsqadmin sends all names, unsorted, so there is nothing to compare with."""
    topics = scale.count(TOPICS)
    row = Row(f"nsqadmin: a page of {topics} topics", "none", NOTHING, OTHER, TARGETS)
    results = Results()

    def one_round() -> None:
        with (
            SimulatedCluster(NODES, topics, CHANNELS) as cluster,
            nsqadmin(cluster.lookupds) as server,
        ):
            host, port = server.http
            results.add("nsqfast", {row: asyncio.run(measure(f"http://{host}:{port}", topics))})

    async def measure(url: str, topics: int) -> dict[str, float]:
        taken = []
        async with aiohttp.ClientSession(url, headers={"Accept": "text/html"}) as session:
            await wait_for_topics(session, topics)
            for path in PATHS * TIMES:
                begun = time.perf_counter()
                async with session.get(path) as answer:
                    await answer.read()
                assert answer.status == 200
                taken.append(1e6 * (time.perf_counter() - begun))
        taken.sort()
        return {"page_p50_us": taken[len(taken) // 2], "page_p99_us": taken[len(taken) * 99 // 100]}

    benchmark.pedantic(one_round, rounds=scale.rounds, iterations=1)
    benchmark.extra_info.update(results.as_json())


async def wait_for_topics(session: aiohttp.ClientSession, count: int) -> None:
    """Wait until nsqadmin knows all of them."""
    async with asyncio.timeout(START_SECONDS_MAX):
        while True:
            async with session.get("/ui/live?view=/topics&since=-") as answer:
                view = await answer.json()
            if view["texts"]["topics.total"] == f"{count:,}":
                return
            await asyncio.sleep(0.1)
