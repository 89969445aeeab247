"""nsqadmin with a hundred simulated nsqds and twenty viewers; what a poll costs for clusters of other sizes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from nsqfast.nsqadmin.app import Server
from nsqfast.nsqadmin.options import Options
from server.duel import Results
from server.scenario import NOTHING, OTHER, Row, at_most
from server.steps import Steps
from server.usage import cpu_ns, resident_bytes
from server.viewers import Viewers, nsqadmin
from support.simulated_cluster import SimulatedCluster
from support.web import get

if TYPE_CHECKING:
    from server.scenario import Scale

NODES = 100
TOPICS = 500
VIEWERS = 20
SECONDS = 60.0
WARM_UP_SECONDS = 10.0  # until memory is steady
NS_PER_PERCENT = 1e7  # of CPU time in a second
TARGETS = (at_most("cpu_percent", 10.0, "<"), at_most("rss_growth_bytes", 16 << 20))
MIN_MAX_SECONDS = 0.5  # between two checks of the memory
POLL_CPU = b"\nnsqadmin_poll_cpu_seconds "
# Nodes, topics, channels of each: nothing may grow with the square of any of them.
SIZES = (
    (1, 10, 3),
    (1, 1_000, 3),
    (1, 10_000, 3),
    (10, 500, 1),
    (100, 500, 1),
    (100, 500, 3),
    (1_000, 50, 1),
)
POLLS = 5
WARM_UP_POLLS = 2
STEP_TARGETS = (at_most("step_max_us", 5_000),)
LARGEST = 100 * 500 * 3  # rows for which STEP_TARGETS is promised
PAGES = ("/topics", "/topics?sort=-depth", "/topics?q=topic-00")


@pytest.mark.parametrize("channels", [1, 3])
def bench_admin_live(benchmark: Any, scale: Scale, channels: int) -> None:
    """Go's nsqadmin queries the cluster again for each page, so there is nothing to compare with."""
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
        memory = asyncio.create_task(watch_memory(pid))
        seen = await viewers.look(seconds)
        memory.cancel()
        least_bytes, most_bytes = await memory
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
            "rss_min_bytes": float(least_bytes),
            "rss_max_bytes": float(most_bytes),
            "poll_cpu_us": 1e6 * await asyncio.to_thread(poll_cpu_seconds, server),
        }

    benchmark.pedantic(one_round, rounds=scale.rounds, iterations=1)
    benchmark.extra_info.update(results.as_json())


async def watch_memory(pid: int) -> tuple[int, int]:
    """Return its minimum and maximum, once cancelled."""
    seen = [resident_bytes(pid)]
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(MIN_MAX_SECONDS)
            seen.append(resident_bytes(pid))
    return min(seen), max(seen)


def poll_cpu_seconds(server: Any) -> float:
    """Return that of the last poll, as nsqadmin reports it."""
    metrics = get(server.http, "/metrics").body
    return float(metrics.partition(POLL_CPU)[2].split(b"\n", 1)[0])


@pytest.mark.parametrize(("nodes", "topics", "channels"), SIZES)
def bench_admin_poll(benchmark: Any, scale: Scale, nodes: int, topics: int, channels: int) -> None:
    """CPU of a poll and of a whole tick (rules, charts), and the longest step on the loop; without viewers."""
    nodes, topics = scale.count(nodes), scale.count(topics)
    is_promised = nodes * topics * channels <= LARGEST and nodes <= NODES and topics <= TOPICS
    row = Row(
        f"nsqadmin: a poll of {nodes:,} nsqd with {topics:,} topics of {channels} channels",
        "none",
        NOTHING,
        OTHER,
        STEP_TARGETS if is_promised else (),
    )
    results = Results()

    def one_round() -> None:
        with SimulatedCluster(nodes, topics, channels) as cluster:
            results.add("nsqfast", {row: uvloop.run(poll(cluster.lookupds, scale.times(POLLS)))})

    benchmark.pedantic(one_round, rounds=scale.rounds, iterations=1)
    benchmark.extra_info.update(results.as_json())


async def poll(lookupds: list[str], times: int) -> dict[str, float]:
    """Poll in this process, with everything that a server runs beside the pages."""
    steps = Steps()
    steps.watch(asyncio.get_running_loop())
    options = Options(nsqlookupd_http_addresses=lookupds, http_address="127.0.0.1:0")
    server = Server(options)
    await server.start()
    # As the program does before it serves.
    gc.collect()
    gc.freeze()
    poller, polls, ticks = server.context.poller, [], []
    try:
        for number in range(WARM_UP_POLLS + times):
            poller.seen()
            poller.ask_now()
            await poller.next_tick()
            if number == WARM_UP_POLLS:
                steps.reset()
            elif number > WARM_UP_POLLS:
                polls.append(poller.cpu_s)
                ticks.append(poller.cycle_cpu_s)
    finally:
        await server.stop()
        gc.unfreeze()
    polls, ticks = polls or [poller.cpu_s], ticks or [poller.cycle_cpu_s]
    return {
        "poll_cpu_us": 1e6 * statistics.median(polls),
        "tick_cpu_us": 1e6 * statistics.median(ticks),
        "step_max_us": 1e6 * steps.longest_s,
    }
