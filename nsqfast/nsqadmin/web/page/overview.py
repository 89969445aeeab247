"""/: what is wrong, six totals, the worst backlogs, the nodes."""

import heapq
from dataclasses import replace

from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.facts import TopicFacts
from nsqfast.nsqadmin.web.page.nodes import NODES, NodeFacts
from nsqfast.nsqadmin.web.page.problems import TABLE as PROBLEMS
from nsqfast.nsqadmin.web.page.topics import TABLE as TOPICS
from nsqfast.nsqadmin.web.pages import Page, PageRequest
from nsqfast.nsqadmin.web.tables import TableSpec, make_table
from nsqfast.nsqadmin.web.view import View

PROBLEMS_SHOWN = 10
WORST_SHOWN = 10
NODES_SHOWN = 12

FOUND = replace(PROBLEMS, searchable=None, filters=(), is_main=False, rows_per_page=PROBLEMS_SHOWN)
WORST: TableSpec[TopicFacts] = replace(
    TOPICS,
    name="worst",
    caption="Worst backlogs",
    columns=[
        column for column in TOPICS.columns if column.key in ("name", "depth", "oldest", "trend")
    ],
    searchable=None,
    filters=(),
    can_select=False,
    has_actions=False,
    is_main=False,
    empty="Nothing waits.",
)
STRIP = replace(
    NODES,
    caption="Nodes",
    searchable=None,
    filters=(),
    has_actions=False,
    is_main=False,
    rows_per_page=NODES_SHOWN,
)


async def build(request: PageRequest) -> View:
    """See above."""
    cluster = request.cluster
    totals = cluster.totals
    facts = await request.topic_facts()
    waiting = [each for each in facts if each.depth]
    worst = heapq.nlargest(WORST_SHOWN, waiting, key=lambda each: each.depth)
    nodes = [NodeFacts(node, cluster.at, len(cluster.lookupds)) for node in cluster.nodes.values()]
    found = [each for each in request.context.problems.found if not each.muted_until]
    return View(
        title="Overview",
        texts={
            "in": texts.rate(totals.in_s),
            "out": texts.rate(totals.out_s),
            "depth": texts.short(totals.depth),
            "in_flight": texts.short(totals.in_flight_count),
            "requeue": texts.rate(totals.requeue_s),
            "nodes": f"{totals.nodes_up:,} of {totals.nodes_known:,}",
        },
        tables={
            "problems": make_table(request, FOUND, found),
            "worst": make_table(request, WORST, worst),
            "nodes": make_table(request, STRIP, nodes),
        },
    )


PAGE = Page("overview", "/", build, "overview.html", "overview")
