"""/: current problems, six totals, charts, the worst backlogs, the nodes. /counter: messages as a running number."""

import heapq
from dataclasses import replace

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.model import Channel, Cluster, NodeState
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.charts import (
    ANY,
    POINT_S,
    depth_chart,
    make_pictures,
    make_plan,
    published_chart,
)
from nsqfast.nsqadmin.web.pages.nodes import NODES, NodeFacts
from nsqfast.nsqadmin.web.pages.problems import TABLE as PROBLEMS
from nsqfast.nsqadmin.web.pages.shares import CHANNELS
from nsqfast.nsqadmin.web.request import PageRequest
from nsqfast.nsqadmin.web.tables import TableSpec, link, make_table, part_of, pick_columns
from nsqfast.nsqadmin.web.view import Page, View

PROBLEMS_SHOWN = 8
NODES_SHOWN = 12
WORST = 10
WAITING_MAX = 500  # channels that are compared at once

CHARTS = published_chart(), depth_chart()

FOUND = part_of(
    PROBLEMS,
    *("where", "severity", "rule", "since", "text"),
    rows_per_page=PROBLEMS_SHOWN,
    whole="/problems",
)
BACKLOGS: TableSpec[Channel] = replace(
    part_of(CHANNELS),
    name="worst",
    caption="Worst backlogs",
    columns=(
        link(
            "name",
            "Channel",
            lambda each: f"{each.topic}/{each.name}",
            lambda urls, each: urls.channel(each.topic, each.name),
        ),
        *pick_columns(CHANNELS, "depth", "growth", "oldest", "trend"),
    ),
    key=lambda each: f"{each.topic}/{each.name}",
    can_select=False,
    has_actions=False,
    empty="No message waits in any channel.",
)
STRIP = part_of(
    NODES,
    *("node", "host", "state", "in", "depth", "clients", "version"),
    caption="Nodes",
    has_actions=False,
    rows_per_page=NODES_SHOWN,
    whole="/nodes",
)
METRICS = ("message_count",)


async def find_deepest_channels(cluster: Cluster) -> list[Channel]:
    """The WORST channels by depth, without empty ones."""
    worst: list[Channel] = []
    waiting: list[Channel] = []
    slices = Slices()
    for topic in cluster.topics.values():
        waiting.extend(each for each in topic.channels.values() if each.counts.depth > 0)
        if len(waiting) > WAITING_MAX:
            worst = heapq.nlargest(WORST, [*worst, *waiting], key=lambda each: each.counts.depth)
            waiting = []
        await slices.pause()
    return heapq.nlargest(WORST, [*worst, *waiting], key=lambda each: each.counts.depth)


async def build_overview(request: PageRequest) -> View:
    cluster, totals = request.cluster, request.cluster.totals
    plan = make_plan(request.query, request.context.options.history_ns / 1e9, CHARTS)
    worst = await find_deepest_channels(cluster)
    topics = await request.facts.topics(request.cluster)
    slopes = [facts.slope for facts in topics if facts.slope is not None]
    # Those with problems first, so that they are on the first page of the table.
    nodes = sorted(cluster.nodes.values(), key=lambda each: each.state is NodeState.UP)
    rows = [NodeFacts(node, cluster.at, len(cluster.lookupds)) for node in nodes]
    silence = request.context.problems.silences.find("", "", "")
    silenced = ""
    if silence:
        until = texts.stamp(silence.until)
        silenced = texts.Timed("Everything is silenced until ", until, f": {silence.reason}")
    found = [each for each in request.context.problems.found if not each.muted_until]
    return View(
        "Overview",
        texts={
            "in": texts.rate(totals.in_s),
            "growth": texts.slope(sum(slopes) if slopes else None),
            "depth": texts.short(totals.depth),
            "in_flight": texts.short(totals.in_flight_count),
            "requeue": texts.rate(totals.requeue_s),
            "nodes": f"{totals.nodes_up:,} of {totals.nodes_known:,}",
            "silenced": silenced,
        },
        shown={"silenced": bool(silence)},
        tables={
            "problems": make_table(request, FOUND, found),
            "worst": make_table(request, BACKLOGS, worst),
            "nodes": make_table(request, STRIP, rows),
        },
        data={"points": cluster.at // POINT_S},
        facts={"plan": plan},
    )


OVERVIEW_PAGE = Page("overview", "/", build_overview, "overview.html", "overview")


async def count_messages(cluster: Cluster) -> tuple[int, float | None]:
    """Messages, and messages per second; None if no channel's rate is known."""
    total, rate, is_known = 0, 0.0, False
    slices = Slices()
    for topic in cluster.topics.values():
        for channel in topic.channels.values():
            total += channel.counts.message_count
            if channel.rates is not None:
                is_known = True
                rate += channel.rates.in_s
        await slices.pause()
    return total, rate if is_known else None


async def build_counter(request: PageRequest) -> View:
    """Scripts let the number grow at the rate until the next tick."""
    total, rate = await count_messages(request.cluster)
    return View(
        "Counter",
        texts={"count": f"{total:,}", "rate": texts.rate(rate)},
        facts={"pictures": make_pictures(request, METRICS, ANY, ANY)},
        data={"count": total, "rate": rate or 0.0},
    )


COUNTER_PAGE = Page("counter", "/counter", build_counter, "counter.html", "counter")
