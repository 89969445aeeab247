"""/nodes/N: one nsqd: its state, what each nsqlookupd says about it, and its topics, tombstoned or not."""

from dataclasses import dataclass

from nsqfast.nsqadmin.cluster.model import Cluster, Node, NodePart, NodeState, Topic, part_at
from nsqfast.nsqadmin.cluster.probes import Vitals
from nsqfast.nsqadmin.cluster.slices import Slices
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.charts import POINT_S, Chart, Line, make_plan
from nsqfast.nsqadmin.web.elements import Link, State
from nsqfast.nsqadmin.web.graphite import make_node_pictures
from nsqfast.nsqadmin.web.near import near_names
from nsqfast.nsqadmin.web.page.parts import node_state
from nsqfast.nsqadmin.web.page.problems import own_problems
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.pages import Page, PageNotFoundError
from nsqfast.nsqadmin.web.search import Searchable
from nsqfast.nsqadmin.web.tables import Column, TableSpec, make_table
from nsqfast.nsqadmin.web.view import View


@dataclass(slots=True, eq=False)
class NodeTopic:
    """A topic's share on this node; one without a part was tombstoned and is gone."""

    name: str
    part: NodePart | None
    channel_count: int
    channels_depth: int
    clients: int
    is_tombstoned: bool

    @property
    def states(self) -> list[State]:
        """The worst first."""
        found = []
        if self.part and self.part.paused:
            found.append(State("warn", "paused"))
        if self.is_tombstoned:
            found.append(State("off", "tombstoned", "nsqlookupd hides the topic on this node"))
        return found


@dataclass(slots=True, eq=False)
class Registration:
    """One nsqlookupd's knowledge of the node."""

    address: str
    is_known: bool
    remote_address: str

    @property
    def states(self) -> list[State]:
        """Known or not."""
        return [
            State("ok", "knows this node") if self.is_known else State("warn", "does not know it")
        ]


TOPICS: TableSpec[NodeTopic] = TableSpec(
    name="topics",
    caption="Topics",
    columns=(
        Column(
            "name",
            "Topic",
            lambda topic: topic.name,
            href=lambda request, topic: request.context.urls.topic(topic.name),
        ),
        Column(
            "state",
            "State",
            lambda topic: ", ".join(state.word for state in topic.states),
            chips=lambda topic: topic.states,
            kind="chips",
            priority=2,
            can_sort=False,
        ),
        Column(
            "depth",
            "Depth",
            lambda topic: topic.part.counts.depth + topic.channels_depth if topic.part else None,
            texts.count,
            "number",
            help="Messages that wait in the topic and in its channels on this node",
        ),
        Column(
            "in",
            "Published",
            lambda topic: topic.part.rates.in_s if topic.part and topic.part.rates else None,
            texts.rate,
            "number",
            2,
        ),
        Column(
            "messages",
            "Messages",
            lambda topic: topic.part.counts.message_count if topic.part else None,
            texts.count,
            "number",
            3,
        ),
        Column("channels", "Channels", lambda topic: topic.channel_count, texts.count, "number", 3),
        Column("clients", "Clients", lambda topic: topic.clients, texts.count, "number", 3),
    ),
    key=lambda topic: topic.name,
    data=lambda topic: {
        "topic": topic.name,
        "node": topic.part.node if topic.part else "",
        "paused": "all" if topic.part and topic.part.paused else "none",
        "tombstoned": "yes" if topic.is_tombstoned else "",
    },
    searchable=Searchable(
        text=lambda topic: topic.name,
        flags={
            "is:paused": lambda topic: topic.part is not None and topic.part.paused,
            "is:tombstoned": lambda topic: topic.is_tombstoned,
        },
        numbers={
            "depth": lambda topic: (
                topic.part.counts.depth + topic.channels_depth if topic.part else None
            ),
            "clients": lambda topic: topic.clients,
            "channels": lambda topic: topic.channel_count,
        },
    ),
    filters=(("paused", "is:paused"), ("tombstoned", "is:tombstoned")),
    has_actions=True,
    empty="This node has no topic.",
    search_label="Search topics of this node",
)

REGISTRATIONS: TableSpec[Registration] = TableSpec(
    name="lookupds",
    caption="nsqlookupd",
    columns=(
        Column("address", "nsqlookupd", lambda each: each.address),
        Column(
            "state",
            "State",
            lambda each: each.states[0].word,
            chips=lambda each: each.states,
            kind="chips",
        ),
        Column("remote", "Connected from", lambda each: each.remote_address, priority=2),
    ),
    key=lambda each: each.address,
    is_main=False,
    empty="No nsqlookupd is configured.",
)


def registrations(cluster: Cluster, node: Node) -> list[Registration]:
    """One for each nsqlookupd."""
    remotes = {}
    for text in node.remote_addresses:
        address, _, remote = text.partition("/")
        remotes[address] = remote
    return [
        Registration(address, address in node.lookupds, remotes.get(address, ""))
        for address in cluster.lookupds
    ]


async def topics_of(cluster: Cluster, node: Node) -> list[NodeTopic]:
    """By name; in slices."""
    found = []
    slices = Slices()
    for topic in cluster.topics.values():
        if (share := share_of(topic, node)) is not None:
            found.append(share)
        await slices.pause()
    return found


def share_of(topic: Topic, node: Node) -> NodeTopic | None:
    """None if the node has no relation to it."""
    part = part_at(topic.parts, node.key)
    is_tombstoned = topic.name in node.tombstones
    if part is None and not is_tombstoned:
        return None
    found = (part_at(channel.parts, node.key) for channel in topic.channels.values())
    channels = [each for each in found if each is not None]
    return NodeTopic(
        name=topic.name,
        part=part,
        channel_count=len(channels),
        channels_depth=sum(each.counts.depth for each in channels),
        clients=sum(each.counts.client_count for each in channels),
        is_tombstoned=is_tombstoned,
    )


def make_charts(node: str) -> list[Chart]:
    """Published messages, waiting ones, connections, and the size of nsqd's heap."""
    key = ("node", node)
    return [
        Chart(
            "rates",
            "Published",
            [Line("Published", ["in_s"], 1, key)],
            "/s",
        ),
        Chart(
            "depth",
            "Depth",
            [Line("Memory", ["memory_depth"], 1, key), Line("Disk", ["backend_depth"], 2, key)],
        ),
        Chart("clients", "Clients", [Line("Clients", ["clients"], 1, key)]),
        Chart("memory", "Memory of nsqd", [Line("Memory", ["memory"], 1, key)], "B"),
    ]


def vitals_texts(node: Node, vitals: Vitals | None) -> dict[str, str]:
    """What only nsqfast-nsqd says; an en dash for what is not known."""
    if vitals is None:
        unknown = texts.size(None)
        return dict.fromkeys(("disk", "fsync", "files", "lag"), unknown) | {"version": node.version}
    look = vitals.last
    files, files_max = (
        texts.count(None if number is None else int(number))
        for number in (look.open_files, look.files_max)
    )
    return {
        "disk": disk_text(vitals),
        "fsync": texts.short_time(vitals.fsync_s),
        "files": f"{files} of {files_max}",
        "lag": texts.at_most(vitals.lag_s),
        "version": f"{node.version}, nsqfast {look.version}",
    }


def disk_text(vitals: Vitals) -> str:
    """`79 GiB used, 173 GiB free, -20 MiB/min, full in 6 d`"""
    disk, change_s = vitals.disk, vitals.free_change_s
    if disk is None:
        return texts.size(None)
    parts = [f"{texts.size(int(disk.used_bytes))} used, {texts.size(int(disk.free_bytes))} free"]
    if change_s:
        sign = "+" if change_s > 0 else "-"
        parts.append(f"{sign}{texts.size(int(abs(change_s) * 60))}/min")
    if vitals.full_in_s is not None:
        parts.append(f"full in {texts.duration(vitals.full_in_s)}")
    return ", ".join(parts)


async def build(request: PageRequest) -> View:
    """State, tiles, what nsqlookupd knows, topics."""
    cluster, key = request.cluster, request.match["node"]
    urls = request.context.urls
    node = cluster.nodes.get(key)
    if node is None:
        near = await near_names(key, cluster.nodes)
        raise PageNotFoundError("node", key, [(each, urls.node(each)) for each in near])
    rates = node.rates
    problems = own_problems(request, node=key)
    is_up = node.state is NodeState.UP and node.start_time
    up_s = cluster.at - node.start_time if is_up else None
    return View(
        title=node.key,
        crumbs=[Link("Nodes", urls.to("/nodes"))],
        texts={
            "in": texts.rate(rates.in_s if rates else None),
            "depth": texts.short(node.counts.depth),
            "messages": texts.short(node.counts.message_count),
            "clients": texts.count(node.counts.client_count),
            "memory": texts.size(node.memory_bytes),
            "host": node.hostname,
            **vitals_texts(node, request.context.problems.vitals(key)),
            "tcp": f"{node.broadcast_address}:{node.tcp_port}",
            "up": texts.duration(up_s),
            "since": texts.stamp(node.since),
            "error": node.error or ("" if node.health in ("", "OK") else node.health),
        },
        states={"node": node_state(node, cluster.at)},
        shown={
            "error": bool(node.error) or node.health not in ("", "OK"),
            "drain": node.state is NodeState.UP and node.drain is None,
            "cancel-drain": node.state is NodeState.UP and node.drain is not None,
            "acknowledge": node.unclean_start is not None,
            "problems-shown": bool(problems.matched),
            # One that is listed, or named by a flag, would come back at once.
            "forget": node.state is NodeState.DOWN and cluster.has_lookupds and not node.lookupds,
        },
        tables={
            "problems": problems,
            "topics": make_table(request, TOPICS, await topics_of(cluster, node)),
            "lookupds": make_table(request, REGISTRATIONS, registrations(cluster, node)),
        },
        data={"points": cluster.at // POINT_S},
        facts={
            "node": node,
            "plan": make_plan(
                request.query, request.context.options.history_ns / 1e9, make_charts(node.key)
            ),
            "pictures": make_node_pictures(request.context, request.query, node.key),
        },
    )


PAGE = Page("node", "/nodes/{node}", build, "node.html", "nodes")
