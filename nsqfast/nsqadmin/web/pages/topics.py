"""/topics, /topics/T, /topics/T/C: every topic with its numbers; one with its channels and nodes; one channel.

A channel's tab chooses its nodes, its clients or its messages; these are pages of their own.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from nsqfast.nsqadmin.cluster.answers import ChannelStats, Client
from nsqfast.nsqadmin.cluster.model import Channel, Cluster, Node, NodePart, Topic
from nsqfast.nsqadmin.cluster.probes import Consumer, Consumers
from nsqfast.nsqadmin.context import Urls
from nsqfast.nsqadmin.problems.report import Problem
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.charts import (
    CHANNEL_METRICS,
    POINT_S,
    TOPIC_METRICS,
    channel_charts,
    make_pictures,
    make_plan,
    topic_charts,
)
from nsqfast.nsqadmin.web.pages.problems import own_problems, problems_by
from nsqfast.nsqadmin.web.pages.shares import (
    CHANNELS,
    EPHEMERAL,
    INACTIVE,
    OLDEST,
    TOMBSTONED,
    channel_states,
    find_channel,
    find_topic,
    in_s,
    node_state,
    out_s,
    paused_state,
    paused_word,
    place_of,
    problem_states,
)
from nsqfast.nsqadmin.web.request import GROWS_S_MIN, PageRequest, Query, TopicFacts, sum_topic
from nsqfast.nsqadmin.web.tables import (
    Column,
    TableSpec,
    chips,
    link,
    make_table,
    number,
    pick_columns,
    replace_state_column,
)
from nsqfast.nsqadmin.web.texts import Link, State
from nsqfast.nsqadmin.web.view import Page, View

SPARK_CHANNELS = 20  # a page has a hundred topics, and each line takes some microseconds
COUNTS: dict[str, Callable[[Channel], int]] = {
    "nodes": lambda channel: len(channel.parts),
    "clients": lambda channel: channel.counts.client_count,
    "deferred": lambda channel: channel.counts.deferred_count,
}
TABS = {"nodes": "Nodes", "clients": "Clients", "messages": "Messages", "deferred": "Deferred"}
TABS |= {"dead": "Dead"}
PARTS = ("nodes", "clients")  # of the channel's page; messages are pages of their own
QUANTILES = (0.5, 0.95, 0.99, 1.0)
NODES_NAMED = 5
POLICY_SIZE_MAX = 200  # characters that are shown of what a node says of it
QUANTILES_MAX = 10  # in one of Graphite's pictures


@dataclass(slots=True, eq=False)
class PartFacts:
    """A topic's or channel's part, with its node; None for one that the cluster no longer lists.

    `stats` has figures that only the node itself reports, for a channel that somebody looks at.
    """

    part: NodePart
    node: Node | None
    at: float
    is_tombstoned: bool
    topic: str
    channel: str  # '' for a share of the topic
    stats: ChannelStats | None = None

    @property
    def states(self) -> list[State]:
        found = [node_state(self.node, self.at)] if self.node else []
        if self.part.paused:
            found.append(State("warn", "paused"))
        return [*found, TOMBSTONED] if self.is_tombstoned else found


def make_part_facts(
    cluster: Cluster,
    topic: str,
    parts: Iterable[NodePart],
    stats: Mapping[str, ChannelStats] = MappingProxyType({}),
    channel: str = "",
) -> list[PartFacts]:
    """In the order of the cluster's nodes; `stats` by key of the node."""
    order = {key: index for index, key in enumerate(cluster.nodes)}
    shares = []
    for part in sorted(parts, key=lambda part: order.get(part.node, len(order))):
        node = cluster.nodes.get(part.node)
        hidden = node is not None and topic in node.tombstones
        shares.append(
            PartFacts(part, node, cluster.at, hidden, topic, channel, stats.get(part.node))
        )
    return shares


CHANNEL_NODES: TableSpec[PartFacts] = TableSpec(
    name="nodes",
    caption="Nodes",
    columns=(
        link(
            "node",
            "Node",
            lambda share: share.part.node,
            lambda urls, share: urls.node(share.part.node) if share.node else "",
        ),
        Column("host", "Host", lambda share: share.node.hostname if share.node else "", priority=3),
        chips("state", "State", lambda share: share.states),
        number("depth", "Depth", lambda share: share.part.counts.depth),
        number("disk", "On disk", lambda share: share.part.counts.backend_depth, 4),
        number("in_flight", "In flight", lambda share: share.part.counts.in_flight_count, 3),
        number("deferred", "Deferred", lambda share: share.part.counts.deferred_count, 4),
        number("requeued", "Requeued", lambda share: share.part.counts.requeue_count, 4),
        number("timed_out", "Timed out", lambda share: share.part.counts.timeout_count, 4),
        number("in", "Published", lambda share: in_s(share.part), 3, texts.rate),
        number("out", "Finished", lambda share: out_s(share.part), 2, texts.rate),
        number("consumers", "Consumers", lambda share: share.part.counts.client_count, 3),
        number("messages", "Messages", lambda share: share.part.counts.message_count, 4),
    ),
    key=lambda share: share.part.node,
    data=lambda share: {
        "node": share.part.node,
        "topic": share.topic,
        "channel": share.channel,
        "paused": "all" if share.part.paused else "none",
    },
    has_actions=True,
    empty="No nsqd has it.",
)
TOPIC_NODES = replace(
    CHANNEL_NODES,
    columns=(
        *pick_columns(CHANNEL_NODES, "node", "host", "state"),
        number(
            "depth",
            "Own depth",
            lambda share: share.part.counts.depth,
            hint="Messages that no channel has taken: there is none on this node, or the topic is paused",
        ),
        *pick_columns(CHANNEL_NODES, "disk"),
        number("in", "Published", lambda share: in_s(share.part), 2, texts.rate),
        *pick_columns(CHANNEL_NODES, "messages"),
    ),
    is_main=False,
)


def topic_states(facts: TopicFacts, problems: Sequence[Problem] = ()) -> list[State]:
    """The chips of a topic's row: its problems, the worst first, and what else is special."""
    states = problem_states(problems)
    if paused := paused_state(facts.topic):
        states.append(paused)
    if facts.paused_channels:
        count = facts.paused_channels
        word = "channel paused" if count == 1 else f"{count:,} channels paused"
        states.append(State("warn", word))
    if facts.is_inactive:
        states.append(INACTIVE)
    return [*states, EPHEMERAL] if facts.topic.is_ephemeral else states


def pause_actions(item: Topic | Channel) -> dict[str, bool]:
    """Which of the two buttons its page shows."""
    word = paused_word(item)
    return {"can-pause": word != "all", "can-unpause": word != "none"}


def topic_line(facts: TopicFacts) -> str:
    """`published 812/s · depth 0 · 3 channels · 12 consumers · 2 nodes · 88 M messages in all`"""
    topic = facts.topic
    parts = [
        f"published {texts.rate(facts.in_s)}",
        f"depth {texts.count(facts.depth)}",
        texts.count_with_noun(facts.channel_count, "channel"),
        texts.count_with_noun(facts.consumer_count, "consumer"),
        texts.count_with_noun(len(topic.parts), "node"),
        f"{texts.short(topic.counts.message_count)} messages in all",
    ]
    if topic.message_bytes is not None:
        parts.append(texts.size(topic.message_bytes))
    if facts.oldest_s is not None:
        shown = texts.age(facts.oldest_s, is_minimum=facts.oldest_is_minimum)
        parts.append(f"oldest {shown} (est.)")
    return " · ".join(parts)


async def build_topic(request: PageRequest) -> View:
    topic = await find_topic(request.context, request.cluster, **request.match)
    context, query = request.context, request.query
    facts = sum_topic(topic)
    problems = own_problems(request, topic=topic.name)
    by_channel = problems_by(problems.matched, lambda problem: problem.channel)
    channels = replace_state_column(
        CHANNELS, lambda each: channel_states(each, by_channel.get(each.name, ()))
    )
    shares = make_part_facts(request.cluster, topic.name, topic.parts)
    view = View(
        topic.name,
        crumbs=[Link("Topics", context.urls.to("/topics"))],
        texts={"state-line": topic_line(facts)},
        shown={"problems-shown": bool(problems.matched), **pause_actions(topic)},
        tables={
            "problems": problems,
            "channels": make_table(request, channels, list(topic.channels.values())),
            "nodes": make_table(request, TOPIC_NODES, shares),
        },
        data={"points": request.cluster.at // POINT_S},
        facts={
            "topic": topic.name,
            "plan": make_plan(query, context.options.history_ns / 1e9, topic_charts(topic)),
            "pictures": make_pictures(request, TOPIC_METRICS, topic.name),
        },
    )
    view.set_state("paused", paused_state(topic))
    view.set_state("inactive", INACTIVE if facts.is_inactive else None)
    view.set_state("ephemeral", EPHEMERAL if topic.is_ephemeral else None)
    return view


TOPIC_PAGE = Page("topic", "/topics/{topic}", build_topic, "topic.html", "topics")


def _spark(request: PageRequest, facts: TopicFacts) -> Sequence[float | None]:
    """Of the topic with its deepest channels."""
    channels = facts.topic.channels.values()
    deepest = heapq.nlargest(SPARK_CHANNELS, channels, key=lambda each: each.counts.depth)
    keys = [("channel", facts.name, channel.name) for channel in deepest]
    return request.context.history.sparkline(("topic", facts.name), *keys)


TABLE: TableSpec[TopicFacts] = TableSpec(
    name="topics",
    caption="Topics",
    columns=(
        link("name", "Topic", lambda facts: facts.name, lambda urls, facts: urls.topic(facts.name)),
        chips("state", "State", topic_states),
        number(
            "depth",
            "Depth",
            lambda facts: facts.depth,
            hint="Messages that wait in the topic and in its channels",
        ),
        number("in", "Published", lambda facts: facts.in_s, 2, texts.rate),
        number(
            "growth",
            "Lag grows by",
            lambda facts: facts.slope,
            3,
            texts.slope,
            hint="Of the depth, over the last five minutes",
        ),
        OLDEST,
        number("in_flight", "In flight", lambda facts: facts.in_flight_count, 4),
        number("channels", "Channels", lambda facts: facts.channel_count, 4),
        number("consumers", "Consumers", lambda facts: facts.consumer_count, 3),
        Column(
            "trend",
            "Trend",
            lambda facts: facts.slope,
            texts.slope,
            "spark",
            4,
            spark=_spark,
            help="Depth over the last hour, of the topic and its channels",
        ),
    ),
    key=lambda facts: facts.name,
    data=lambda facts: {
        "topic": facts.name,
        "paused": paused_word(facts.topic),
        "inactive": "yes" if facts.is_inactive else "",
    },
    searchable=lambda facts: facts.name,
    flags={
        "is:paused": lambda facts: facts.topic.parts.paused_count + facts.paused_channels > 0,
        "is:ephemeral": lambda facts: facts.topic.is_ephemeral,
        "is:inactive": lambda facts: facts.is_inactive,
        "is:growing": lambda facts: (facts.slope or 0.0) > GROWS_S_MIN,
        "no:consumers": lambda facts: facts.idle_channels > 0,
    },
    numbers=("depth", "rate=in", "in", "growth", "oldest", "in_flight", "channels", "consumers"),
    filters=(
        ("paused", "is:paused"),
        ("no consumers", "no:consumers"),
        ("growing", "is:growing"),
        ("ephemeral", "is:ephemeral"),
        ("inactive", "is:inactive"),
    ),
    can_select=True,
    has_actions=True,
    empty="No topic.",
    search_label="Search topics",
)


async def build_topics(request: PageRequest) -> View:
    """One table: topics with problems first, the worst of them at the top."""
    problems = problems_by(request.context.problems.found, lambda problem: problem.topic)
    known = await request.facts.topics(request.cluster)
    by_name = {facts.name: facts for facts in known if facts.name in problems}
    first = [by_name[name] for name in problems if name in by_name]
    facts = [*first, *[each for each in known if each.name not in by_name]]
    spec = replace_state_column(TABLE, lambda each: topic_states(each, problems.get(each.name, ())))
    return View("Topics", tables={"topics": make_table(request, spec, facts)})


TOPICS_PAGE = Page("topics", "/topics", build_topics, "topics.html", "topics")


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """`connected_s` is relative to the tick, by the clock of this machine."""

    consumer: Consumer
    node: Node
    connected_s: float
    channel: Channel

    @property
    def client(self) -> Client:
        return self.consumer.client


def make_consumer_rows(
    cluster: Cluster, channel: Channel, consumers: Consumers
) -> list[ConsumerRow]:
    """Those near to their node first, as in nsqadmin: same zone, same region, others."""
    rows = [
        ConsumerRow(
            each, cluster.nodes[each.node], max(0.0, cluster.at - each.client.connect_ts), channel
        )
        for each in consumers.all()
        if each.node in cluster.nodes
    ]
    return sorted(rows, key=lambda row: (row.node.hostname, row.node.key, -nearness(row)))


def nearness(row: ConsumerRow) -> int:
    """2 in the zone of its node, 1 in its region, 0 elsewhere or unknown."""
    node, client = row.node, row.client
    if not client.topology_region or client.topology_region != node.topology_region:
        return 0
    return 2 if client.topology_zone and client.topology_zone == node.topology_zone else 1


def attribute_states(row: ConsumerRow) -> list[State]:
    """Its negotiated features, identity and location."""
    client = row.client
    states = []
    if client.sample_rate:
        states.append(State("info", f"sampled {client.sample_rate} %"))
    if client.tls:
        parts = [client.tls_version, client.tls_cipher_suite, client.tls_negotiated_protocol]
        states.append(State("info", "TLS", " ".join(part for part in parts if part)))
    if client.deflate:
        states.append(State("info", "Deflate"))
    if client.snappy:
        states.append(State("info", "Snappy"))
    if client.authed:
        parts = [client.auth_identity, client.auth_identity_url]
        states.append(State("info", "authenticated", " ".join(part for part in parts if part)))
    if place := place_of(client):
        states.append(State("info", place, "region/zone"))
    if near := nearness(row):
        states.append(State("ok", "same zone" if near == 2 else "same region", "as its nsqd"))
    return states


def host_text(row: ConsumerRow) -> str:
    """`HOST:PORT (ID)`, with the id only if it adds something."""
    client = row.client
    port = client.remote_address.rpartition(":")[2]
    host = f"{client.hostname}:{port}" if client.hostname else client.remote_address
    return host if client.client_id in ("", client.hostname) else f"{host} ({client.client_id})"


def held_s(row: ConsumerRow) -> float | None:
    """Since its last FIN or REQ, if it has messages; None: below a second, or not reported."""
    return row.client.held_ms / 1e3 or None


def _client_names(row: ConsumerRow) -> dict[str, str]:
    return {
        "topic": row.channel.topic,
        "channel": row.channel.name,
        "node": row.node.key,
        "client": row.client.remote_address,
    }


CLIENT_COLUMNS: Sequence[Column[ConsumerRow]] = (
    Column("host", "Client", host_text, title=lambda row: row.client.remote_address),
    Column("user_agent", "User agent", lambda row: row.client.user_agent, priority=3),
    chips("attributes", "Attributes", attribute_states, 3),
    link("node", "Node", lambda row: row.node.key, lambda urls, row: urls.node(row.node.key), 2),
    number("rdy", "RDY", lambda row: row.client.ready_count),
    number("in_flight", "In flight", lambda row: row.client.in_flight_count),
    number(
        "held",
        "Held for",
        held_s,
        2,
        texts.duration,
        hint="Since its last FIN or REQ, while it has messages in flight",
    ),
    number(
        "oldest",
        "Oldest",
        lambda row: row.client.oldest_in_flight_ms / 1e3 or None,
        3,
        texts.duration,
        hint="Since the oldest message in flight to it was delivered",
    ),
    number("finish_s", "Finished/s", lambda row: row.consumer.finish_s, 2, texts.rate),
    number("finished", "Finished", lambda row: row.client.finish_count, 4),
    number("requeued", "Requeued", lambda row: row.client.requeue_count, 2),
    number("timed_out", "Timed out", lambda row: row.client.timeout_count, 3),
    number("messages", "Messages", lambda row: row.client.message_count, 4),
    number("connected", "Connected", lambda row: row.connected_s, 3, texts.duration),
)

CLIENTS: TableSpec[ConsumerRow] = TableSpec(
    name="clients",
    caption="Clients",
    columns=CLIENT_COLUMNS,
    key=lambda row: row.consumer.key,
    data=_client_names,
    has_actions=True,
    searchable=lambda row: f"{host_text(row)} {row.client.user_agent} {row.client.remote_address}",
    flags={"no:rdy": lambda row: row.client.ready_count == 0},
    numbers=("rdy", "in_flight", "finished", "requeued", "held", "timed_out"),
    empty="Nobody consumes this channel.",
    search_label="Search clients",
)


def make_tabs(urls: Urls, query: Query, topic: str, channel: str, current: str) -> list[Link]:
    """With their numbers, if they have one. Search, sort and page belong to the tab being left."""
    page = urls.channel(topic, channel)
    kept = [(name, query.get(name)) for name in ("range", "t")]
    places = {name: page + Query([("tab", name), *kept]).with_({}) for name in PARTS}
    return [
        Link(
            label,
            places.get(name, f"{page}/{name}"),
            name == current,
            f"tab.{name}" if name in COUNTS else "",
        )
        for name, label in TABS.items()
    ]


def tab_texts(channel: Channel | None) -> dict[str, str]:
    """For View.texts; unknown values for a channel that no tick has seen."""
    return {
        f"tab.{name}": texts.count(count(channel) if channel else None)
        for name, count in COUNTS.items()
    }


def delivery_text(share: PartFacts) -> str:
    """`zone 60 %, region 30 %, global 10 %`, if nsqd counts its deliveries by zone and region."""
    counts: dict[str, int] = {}
    if stats := share.stats:
        counts["zone"] = stats.zone_local_msg_count
        counts["region"] = stats.region_local_msg_count
        counts["global"] = stats.global_msg_count
    total = sum(counts.values())
    if not total:
        return texts.UNKNOWN
    return ", ".join(f"{name} {texts.share(number / total)}" for name, number in counts.items())


def read_latencies(stats: ChannelStats | None) -> dict[float, float]:
    """The seconds from publishing to FIN, by quantile, that nsqd measures."""
    latency = stats.e2e_processing_latency if stats else None
    given = latency.percentiles if latency else None
    return {each.get("quantile", 0.0): each.get("value", 0.0) / 1e9 for each in given or ()}


def latency_s(share: PartFacts, quantile: float) -> float | None:
    known = read_latencies(share.stats)
    return next((known[each] for each in known if math.isclose(each, quantile)), None)


def latency_text(seconds: float | None) -> str:
    """`12.5 ms`; without decimals from ten seconds on."""
    if seconds is None or seconds >= 10:
        return texts.duration(seconds)
    return f"{seconds * 1000:,.4g} ms"


def _latency_column(quantile: float) -> Column[PartFacts]:
    return number(
        f"p{quantile * 100:g}",
        f"p{quantile * 100:g}",
        lambda share: latency_s(share, quantile),
        3,
        latency_text,
        hint="Time from publishing to FIN, as this nsqd measures it",
    )


DELIVERY: Column[PartFacts] = Column(
    "delivery",
    "Delivery",
    delivery_text,
    priority=4,
    can_sort=False,
    help="Shares of messages that went to consumers in the zone of the node, in its region, elsewhere",
)


def policy_text(share: PartFacts) -> str:
    """`small: max_messages 100, overflow drop_head; 7 dropped`, if a policy holds for the channel there."""
    if share.stats is None or share.stats.policy is None:
        return texts.UNKNOWN
    given = msgspec.structs.asdict(share.stats.policy)
    name = given.pop("name")
    rules = ", ".join(
        f"{key} {f'{value:g}' if isinstance(value, float) else value}"
        for key, value in given.items()
        if value
    )
    dropped = share.stats.dropped_count
    pause = "paused, deliveries fail; " if share.stats.paused_by_policy else ""
    shown = f"{name}: {pause}{rules}{f'; {texts.count(dropped)} dropped' if dropped else ''}"
    return shown[:POLICY_SIZE_MAX]


POLICY: Column[PartFacts] = Column(
    "policy",
    "Policy",
    policy_text,
    priority=3,
    can_sort=False,
    help="The policy that holds for the channel on this node, with what it says",
)


def node_spec(shares: Sequence[PartFacts]) -> TableSpec[PartFacts]:
    """With latencies, shares of delivery and policies if some node has them."""
    columns = [*CHANNEL_NODES.columns]
    columns += [
        _latency_column(quantile)
        for quantile in QUANTILES
        if any(latency_s(share, quantile) is not None for share in shares)
    ]
    if any(delivery_text(share) != texts.UNKNOWN for share in shares):
        columns.append(DELIVERY)
    if any(policy_text(share) != texts.UNKNOWN for share in shares):
        columns.append(POLICY)
    return replace(CHANNEL_NODES, columns=columns)


def add_nodes(view: View, request: PageRequest, channel: Channel, consumers: Consumers) -> None:
    stats = {key: answer.stats for key, answer in consumers.answers.items()}
    shares = make_part_facts(request.cluster, channel.topic, channel.parts, stats, channel.name)
    view.tables["nodes"] = make_table(request, node_spec(shares), shares)


def add_clients(view: View, request: PageRequest, channel: Channel, consumers: Consumers) -> None:
    """Its consumers; nodes that did not answer are named."""
    rows = make_consumer_rows(request.cluster, channel, consumers)
    view.tables["clients"] = make_table(request, CLIENTS, rows)
    answered = consumers.answers.keys() - consumers.errors
    silent = [part.node for part in channel.parts if part.node not in answered]
    text = f"No answer about its clients from {join_some(silent)}" if silent else ""
    view.set_text("silent", text)


def main_state(channel: Channel) -> State:
    """One word for its state, with the evidence."""
    counts, rates = channel.counts, channel.rates
    if not channel.parts:
        return INACTIVE
    if counts.client_count == 0:
        if not counts.depth:
            return State("off", "no consumers", "nothing waits")
        waits = texts.count_with_noun(counts.depth, "message waits", "messages wait")
        return State("crit", "no consumers", waits)
    if channel.depth_slope is not None and channel.depth_slope > GROWS_S_MIN and counts.depth:
        return State("warn", "growing", f"{texts.slope(channel.depth_slope)} over five minutes")
    if rates is not None and (rates.out_s > 0 or rates.in_s > 0):
        return State("ok", "consuming", f"{texts.rate(rates.out_s)} leave it")
    if counts.depth:
        return State("info", "waiting")
    return State("ok", "idle", "nothing comes, nothing waits")


def channel_line(channel: Channel) -> str:
    """`published 812/s, finished 790/s, depth +22/s · 12 consumers on 2 nodes · 88 M messages in all`"""
    counts, rates = channel.counts, channel.rates
    come, go = (rates.in_s, rates.out_s) if rates else (None, None)
    flow = f"published {texts.rate(come)}, finished {texts.rate(go)}"
    if channel.depth_slope is not None:
        flow += f", depth {texts.slope(channel.depth_slope)} over five minutes"
    nodes = texts.count_with_noun(len(channel.parts), "node")
    parts = [flow, f"{texts.count_with_noun(counts.client_count, 'consumer')} on {nodes}"]
    parts.append(f"{texts.short(counts.message_count)} messages in all")
    return " · ".join(parts)


def make_texts(channel: Channel) -> dict[str, str]:
    counts = channel.counts
    oldest = texts.age(channel.oldest_s, is_minimum=channel.oldest_is_minimum)
    return {
        "state-line": channel_line(channel),
        "depth": texts.count(counts.depth),
        "disk": texts.count(counts.backend_depth),
        "in_flight": texts.count(counts.in_flight_count),
        "deferred": texts.count(counts.deferred_count),
        "requeued": texts.count(counts.requeue_count),
        "timed_out": texts.count(counts.timeout_count),
        "oldest": f"{oldest} est." if channel.oldest_s and channel.oldest_is_estimate else oldest,
    }


def join_some(nodes: Sequence[str]) -> str:
    """NODES_NAMED of them, and how many more there are."""
    more = len(nodes) - NODES_NAMED
    shown = texts.Timed(*[piece for node in nodes[:NODES_NAMED] for piece in (", ", node)][1:])
    return texts.Timed(shown, f" and {more} more") if more > 0 else shown


def dead_text(consumers: Consumers) -> str:
    """`12 messages died since their nsqd was started: 10 failed, 2 rejected`; '' if none did."""
    counts: dict[str, int] = {}
    for answer in consumers.answers.values():
        for reason, died in answer.stats.dead_letter_counts.items():
            counts[reason] = counts.get(reason, 0) + died
    total = texts.count_with_noun(sum(counts.values()), "message")
    return f"{total} died since nsqd was started: {texts.deaths(counts)}" if counts else ""


def older_text(cluster: Cluster, consumers: Consumers) -> str:
    """Which nodes did not answer in time when the page asked for clients and latencies; '' if all of them did.

    `Clients and latencies are older than the other numbers: of 10.0.0.7:4151 at 11:24:03`
    """
    older = [
        texts.Timed(f"of {node} at ", texts.clock(answer.at))
        for node, answer in sorted(consumers.answers.items())
        if answer.at < cluster.at
    ]
    said = "Clients and latencies are older than the other numbers: "
    return texts.Timed(said, join_some(older)) if older else ""


async def build_channel(request: PageRequest) -> View:
    """All numbers are of the cluster's tick, but clients and latencies of a question that follows it.

    Whoever is late keeps nobody waiting: its last answer is shown, and the page says that it is older.
    """
    topic, channel = await find_channel(request.context, request.cluster, **request.match)
    context, query = request.context, request.query
    urls = context.urls
    tab = query.choice("tab", PARTS)
    problems = own_problems(request, topic=topic.name, channel=channel.name)
    consumers = await context.consumers.get(request.cluster, channel)
    pictures = make_pictures(
        request, CHANNEL_METRICS, topic.name, channel.name, quantiles_of(consumers)
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
            "tabs": make_tabs(urls, query, topic.name, channel.name, tab),
            "plan": make_plan(query, context.options.history_ns / 1e9, channel_charts(channel)),
            "pictures": pictures,
        },
    )
    view.set_state("main", main_state(channel))
    view.set_text("older", older_text(request.cluster, consumers))
    view.set_text("dead", dead_text(consumers))
    view.set_state("paused", paused_state(channel))
    view.set_state("ephemeral", EPHEMERAL if channel.is_ephemeral else None)
    add_part = add_nodes if tab == "nodes" else add_clients
    add_part(view, request, channel, consumers)
    return view


def quantiles_of(consumers: Consumers) -> list[float]:
    """Those of the times from publishing to FIN that some node measures, the highest first."""
    answers = consumers.answers.values()
    found = {quantile for answer in answers for quantile in read_latencies(answer.stats)}
    return sorted((each for each in found if 0 < each <= 1), reverse=True)[:QUANTILES_MAX]


CHANNEL_PAGE = Page("channel", "/topics/{topic}/{channel}", build_channel, "channel.html", "topics")
