"""/topics/T/C: a channel's state and charts; the tab chooses its nodes, its clients or its messages.

A tab of TABS has a `build` that fills the View and a `template` that is included; messages are pages of their own.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from nsqfast.nsqadmin.cluster.model import Channel, Topic
from nsqfast.nsqadmin.cluster.probes import Consumers
from nsqfast.nsqadmin.web import consumer_table, texts
from nsqfast.nsqadmin.web.charts import POINT_S, Chart, Line, make_plan
from nsqfast.nsqadmin.web.elements import Link, State
from nsqfast.nsqadmin.web.facts import GROWS_S_MIN, pause_actions, paused_state
from nsqfast.nsqadmin.web.graphite import CHANNEL_METRICS, make_pictures
from nsqfast.nsqadmin.web.near import near_names
from nsqfast.nsqadmin.web.page.parts import CHANNEL_NODES, Share, make_shares
from nsqfast.nsqadmin.web.page.problems import own_problems
from nsqfast.nsqadmin.web.page.topic import find_topic, set_state
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.pages import Page, PageNotFoundError
from nsqfast.nsqadmin.web.tables import Column, TableSpec, make_table
from nsqfast.nsqadmin.web.tabs import make_tab, message_tabs, tab_texts
from nsqfast.nsqadmin.web.view import View

QUANTILES = (0.5, 0.95, 0.99, 1.0)
ERRORS_MAX = 5
QUANTILES_MAX = 10  # in one of Graphite's pictures


@dataclass(slots=True)
class ChannelRequest:
    """The input of a tab's `build`."""

    page: PageRequest
    topic: Topic
    channel: Channel
    consumers: Consumers
    view: View


@dataclass(frozen=True, slots=True)
class Tab:
    """One of `?tab=`."""

    name: str
    label: str
    template: str
    build: Callable[[ChannelRequest], Awaitable[None]]


def deliveries(share: Share) -> int:
    """Shares of deliveries, if nsqd counts them by zone and region."""
    stats = share.stats
    if stats is None:
        return 0
    return stats.zone_local_msg_count + stats.region_local_msg_count + stats.global_msg_count


def delivery_text(share: Share) -> str:
    """`zone 60 %, region 30 %, global 10 %`"""
    total, stats = deliveries(share), share.stats
    if not total or stats is None:
        return texts.UNKNOWN
    shares = (
        ("zone", stats.zone_local_msg_count),
        ("region", stats.region_local_msg_count),
        ("global", stats.global_msg_count),
    )
    return ", ".join(f"{name} {texts.share(number / total)}" for name, number in shares)


def latency_s(share: Share, quantile: float) -> float | None:
    """From publishing to FIN; None if nsqd does not measure it, or not this quantile."""
    latency = share.stats.e2e_processing_latency if share.stats else None
    for each in (latency.percentiles if latency else None) or ():
        if math.isclose(each.get("quantile", 0.0), quantile):
            return each.get("value", 0.0) / 1e9
    return None


def latency_text(seconds: float | None) -> str:
    """`12.5 ms`; without decimals from ten seconds on."""
    if seconds is None or seconds >= 10:
        return texts.duration(seconds)
    return f"{seconds * 1000:,.4g} ms"


def _latency_column(quantile: float) -> Column[Share]:
    return Column(
        f"p{quantile * 100:g}",
        f"p{quantile * 100:g}",
        lambda share: latency_s(share, quantile),
        latency_text,
        "number",
        3,
        help="Time from publishing to FIN, as this nsqd measures it",
    )


DELIVERY: Column[Share] = Column(
    "delivery",
    "Delivery",
    delivery_text,
    priority=4,
    can_sort=False,
    help="Shares of messages that went to consumers in the zone of the node, in its region, elsewhere",
)


def node_spec(shares: Sequence[Share]) -> TableSpec[Share]:
    """With latencies and shares of delivery if some node has them."""
    columns = [*CHANNEL_NODES.columns]
    columns += [
        _latency_column(quantile)
        for quantile in QUANTILES
        if any(latency_s(share, quantile) is not None for share in shares)
    ]
    if any(deliveries(share) for share in shares):
        columns.append(DELIVERY)
    return replace(CHANNEL_NODES, columns=columns, is_main=True)


async def build_nodes(request: ChannelRequest) -> None:
    """Its numbers on each node."""
    channel = request.channel
    stats = {key: answer.stats for key, answer in request.consumers.answers.items()}
    shares = make_shares(request.page.cluster, channel.topic, channel.parts, stats, channel.name)
    request.view.tables["nodes"] = make_table(request.page, node_spec(shares), shares)


async def build_clients(request: ChannelRequest) -> None:
    """Its consumers; nodes that did not answer are named."""
    cluster, found = request.page.cluster, request.consumers
    rows = consumer_table.make_rows(cluster, request.channel, found)
    request.view.tables["clients"] = make_table(request.page, consumer_table.SPEC, rows)
    silent = [
        part.node
        for part in request.channel.parts
        if part.node in found.errors or part.node not in found.answers
    ]
    names = ", ".join(silent[:ERRORS_MAX])
    if len(silent) > ERRORS_MAX:
        names += f" and {len(silent) - ERRORS_MAX} more"
    request.view.texts["silent"] = f"No answer about its clients from {names}" if silent else ""
    request.view.shown["silent-shown"] = bool(silent)


TABS = [
    Tab("nodes", "Nodes", "channel_nodes.html", build_nodes),
    Tab("clients", "Clients", "channel_clients.html", build_clients),
]


def make_charts(channel: Channel) -> list[Chart]:
    """Rates; waiting messages; messages in flight or deferred."""
    key = ("channel", channel.topic, channel.name)
    return [
        Chart(
            "rates",
            "Per second",
            [
                Line("Published", ["in_s"], 1, key),
                Line("Finished", ["out_s"], 2, key),
                Line("Requeued", ["requeue_s"], 3, key),
                Line("Timed out", ["timeout_s"], 4, key),
            ],
            "/s",
        ),
        Chart(
            "depth",
            "Depth",
            [Line("Memory", ["memory_depth"], 1, key), Line("Disk", ["backend_depth"], 2, key)],
        ),
        Chart(
            "held",
            "In flight and deferred",
            [Line("In flight", ["in_flight"], 1, key), Line("Deferred", ["deferred"], 2, key)],
        ),
    ]


def main_state(channel: Channel) -> State:
    """One word for its state, with the evidence."""
    counts, rates = channel.counts, channel.rates
    if not channel.parts:
        return State("off", "inactive", "only nsqlookupd knows it: no nsqd has it")
    if counts.client_count == 0:
        waits = texts.plural(counts.depth, "message waits", "messages wait")
        return (
            State("crit", "no consumers", waits)
            if counts.depth
            else State("off", "no consumers", "nothing waits")
        )
    if channel.depth_slope is not None and channel.depth_slope > GROWS_S_MIN and counts.depth:
        return State("warn", "growing", f"{texts.slope(channel.depth_slope)} over five minutes")
    if rates is not None and (rates.out_s > 0 or rates.in_s > 0):
        return State("ok", "consuming", f"{texts.rate(rates.out_s)} leave it")
    return (
        State("ok", "idle", "nothing comes, nothing waits")
        if not counts.depth
        else State("info", "waiting")
    )


def state_line(channel: Channel) -> str:
    """`published 812/s, finished 790/s, depth +22/s · 12 consumers on 2 nodes · 88 M messages in all`"""
    counts, rates = channel.counts, channel.rates
    come, go = (rates.in_s, rates.out_s) if rates else (None, None)
    flow = f"published {texts.rate(come)}, finished {texts.rate(go)}"
    if channel.depth_slope is not None:
        flow += f", depth {texts.slope(channel.depth_slope)} over five minutes"
    nodes = texts.plural(len(channel.parts), "node")
    parts = [flow, f"{texts.plural(counts.client_count, 'consumer')} on {nodes}"]
    parts.append(f"{texts.short(counts.message_count)} messages in all")
    return " · ".join(parts)


async def find_channel(request: PageRequest) -> tuple[Topic, Channel]:
    """PageNotFoundError has similar names."""
    topic = await find_topic(request)
    name = request.match["channel"]
    channel = topic.channels.get(name)
    if channel is None:
        urls = request.context.urls
        near = await near_names(name, topic.channels)
        links = [(f"{topic.name}/{other}", urls.channel(topic.name, other)) for other in near]
        raise PageNotFoundError(
            "channel", f"{topic.name}/{name}", links or [(topic.name, urls.topic(topic.name))]
        )
    return topic, channel


def make_texts(channel: Channel) -> dict[str, str]:
    """The texts of the tiles and the line above them."""
    counts = channel.counts
    oldest = texts.age(channel.oldest_s, is_minimum=channel.oldest_is_minimum)
    return {
        "state-line": state_line(channel),
        "depth": texts.count(counts.depth),
        "disk": texts.count(counts.backend_depth),
        "in_flight": texts.count(counts.in_flight_count),
        "deferred": texts.count(counts.deferred_count),
        "requeued": texts.count(counts.requeue_count),
        "timed_out": texts.count(counts.timeout_count),
        "oldest": f"{oldest} est." if channel.oldest_s and channel.oldest_is_estimate else oldest,
    }


async def build(request: PageRequest) -> View:
    """See the module."""
    topic, channel = await find_channel(request)
    context, query = request.context, request.query
    urls = context.urls
    names = [tab.name for tab in TABS]
    tab = TABS[names.index(query.choice("tab", names))]
    problems = own_problems(request, topic=topic.name, channel=channel.name)
    consumers = await context.consumers.get(request.cluster, channel)
    pictures = make_pictures(
        context, query, CHANNEL_METRICS, topic.name, channel.name, quantiles_of(consumers)
    )
    view = View(
        channel.name,
        crumbs=[Link("Topics", urls.to("/topics")), Link(topic.name, urls.topic(topic.name))],
        texts=make_texts(channel) | tab_texts(channel),
        shown={"problems-shown": bool(problems.matched), **pause_actions(channel)},
        tables={"problems": problems},
        data={"points": request.cluster.at // POINT_S},
        facts={
            "topic": topic.name,
            "channel": channel.name,
            "tab": tab,
            "tabs": [
                # Search, sort and page belong to the tab being left.
                make_tab(
                    each.name,
                    each.label,
                    "?" + tab_query(request, each.name),
                    is_current=each is tab,
                )
                for each in TABS
            ]
            + message_tabs(urls, topic.name, channel.name),
            "plan": make_plan(query, context.options.history_ns / 1e9, make_charts(channel)),
            "pictures": pictures,
        },
    )
    set_state(view, "main", main_state(channel))
    set_state(view, "paused", paused_state(channel))
    set_state(view, "ephemeral", State("info", "ephemeral") if channel.is_ephemeral else None)
    await tab.build(ChannelRequest(request, topic, channel, consumers, view))
    return view


def quantiles_of(consumers: Consumers) -> list[float]:
    """The quantiles of the times from publishing to FIN that some node measures, the highest first."""
    found = set()
    for answer in consumers.answers.values():
        latency = answer.stats.e2e_processing_latency
        for each in (latency.percentiles if latency else None) or ():
            quantile = each.get("quantile", 0.0)
            if 0 < quantile <= 1:
                found.add(quantile)
    return sorted(found, reverse=True)[:QUANTILES_MAX]


def tab_query(request: PageRequest, name: str) -> str:
    """`tab=clients&range=6h`: the parameters that stay when another tab is opened."""
    kept = {key: request.query.get(key) for key in ("range", "t")}
    return "&".join(f"{key}={value}" for key, value in {"tab": name, **kept}.items() if value)


PAGE = Page("channel", "/topics/{topic}/{channel}", build, "channel.html", "topics")
