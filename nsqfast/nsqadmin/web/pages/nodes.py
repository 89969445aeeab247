"""/nodes, /nodes/N and /lookup: every nsqd and nsqlookupd, one nsqd, and what only nsqlookupd know."""

from dataclasses import dataclass

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.answers import CommitLogFigures
from nsqfast.nsqadmin.cluster.commit_log import CommitLog
from nsqfast.nsqadmin.cluster.model import Cluster, Lookupd, Node, NodePart, NodeState
from nsqfast.nsqadmin.cluster.probes import Disk, Vitals
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.charts import POINT_S, make_node_pictures, make_plan, node_charts
from nsqfast.nsqadmin.web.pages.problems import own_problems
from nsqfast.nsqadmin.web.pages.shares import TOMBSTONED, in_s, node_state, place_of
from nsqfast.nsqadmin.web.request import PageRequest
from nsqfast.nsqadmin.web.tables import Column, TableSpec, chips, link, make_table, number
from nsqfast.nsqadmin.web.texts import Link, State
from nsqfast.nsqadmin.web.view import Page, PageNotFoundError, View, find_similar_names

MISSING_SHOWN = 3
LOG_TEXT_MAX = 200
NO_LOG = CommitLog(CommitLogFigures(), None, None, None, None)


@dataclass(slots=True, eq=False)
class NodeFacts:
    node: Node
    at: float
    lookupds: int  # configured
    disk: Disk | None = None

    @property
    def states(self) -> list[State]:
        """The chips of a node, the worst first."""
        found = [node_state(self.node, self.at)]
        if self.node.is_out_of_date:
            found.append(State("info", "older version", "another node has a higher version"))
        # A drain begins by leaving them.
        if self.node.drain is None and len(self.node.lookupds) < self.lookupds:
            known = f"known to {len(self.node.lookupds)} of {self.lookupds} nsqlookupd"
            found.append(State("warn", known))
        return found


@dataclass(slots=True, eq=False)
class LookupdFacts:
    """A row of the table of nsqlookupd; `missing` are nodes that another one knows."""

    lookupd: Lookupd
    missing: list[str]

    @property
    def states(self) -> list[State]:
        if not self.lookupd.is_up:
            return [State("crit", "down", self.lookupd.error)]
        if self.missing:
            return [State("warn", "disagrees", "does not know a node that another one knows")]
        return [State("ok", "up")]

    @property
    def missing_text(self) -> str:
        """Some of them by name; the error if it does not answer."""
        if not self.lookupd.is_up:
            return self.lookupd.error
        if not self.missing:
            return ""
        more = len(self.missing) - MISSING_SHOWN
        shown = ", ".join(self.missing[:MISSING_SHOWN])
        return f"does not know {shown}" + (f" and {more:,} more" if more > 0 else "")


def up_s(node: Node, at: float) -> float | None:
    return at - node.start_time if node.start_time and node.state is NodeState.UP else None


NODES: TableSpec[NodeFacts] = TableSpec(
    name="nodes",
    caption="nsqd",
    columns=(
        link(
            "node",
            "Node",
            lambda facts: facts.node.key,
            lambda urls, facts: urls.node(facts.node.key),
        ),
        Column("host", "Host", lambda facts: facts.node.hostname, priority=2),
        chips("state", "State", lambda facts: facts.states),
        number("in", "Published", lambda facts: in_s(facts.node), 2, texts.rate),
        number("depth", "Depth", lambda facts: facts.node.counts.depth, 2),
        number("topics", "Topics", lambda facts: facts.node.topic_count, 3),
        number("clients", "Clients", lambda facts: facts.node.counts.client_count, 4),
        number("memory", "Memory", lambda facts: facts.node.memory_bytes, 4, texts.size),
        number(
            "disk",
            "Disk free",
            lambda facts: facts.disk.free_bytes if facts.disk else None,
            3,
            texts.size,
            hint="Of the file system with its data; only nsqfast-nsqd says",
        ),
        Column("version", "Version", lambda facts: facts.node.version, priority=3),
        number("tcp_port", "TCP port", lambda facts: facts.node.tcp_port, 4, str),
        Column("zone", "Zone", lambda facts: place_of(facts.node), priority=4),
        number("up", "Up for", lambda facts: up_s(facts.node, facts.at), 4, texts.duration),
    ),
    key=lambda facts: facts.node.key,
    data=lambda facts: {"node": facts.node.key},
    kind=lambda facts: "crit" if facts.states[0].kind == "crit" else "",
    searchable=lambda facts: f"{facts.node.key} {facts.node.hostname} {facts.node.version}",
    flags={
        "is:up": lambda facts: facts.node.state is NodeState.UP,
        "is:stale": lambda facts: facts.node.state is NodeState.STALE,
        "is:down": lambda facts: facts.node.state is NodeState.DOWN,
        "is:draining": lambda facts: facts.node.drain is not None,
        "is:outdated": lambda facts: facts.node.is_out_of_date,
    },
    numbers=("depth", "rate=in", "topics", "clients"),
    filters=(("stale", "is:stale"), ("down", "is:down"), ("older version", "is:outdated")),
    has_actions=True,
    empty="No nsqd.",
    search_label="Search nodes",
)

LOOKUPDS: TableSpec[LookupdFacts] = TableSpec(
    name="lookupds",
    caption="nsqlookupd",
    columns=(
        Column("address", "Address", lambda facts: facts.lookupd.address),
        chips("state", "State", lambda facts: facts.states, 1),
        number("since", "Since", lambda facts: facts.lookupd.since, 3, texts.stamp),
        Column("version", "Version", lambda facts: facts.lookupd.version, priority=3),
        number("nodes", "Nodes", lambda facts: len(facts.lookupd.nodes), 2),
        Column("missing", "Detail", lambda facts: facts.missing_text, priority=2, is_named=False),
    ),
    key=lambda facts: facts.lookupd.address,
    is_main=False,
    empty="No nsqlookupd is configured: nsqd are asked directly.",
)


def lookupd_facts(cluster: Cluster) -> list[LookupdFacts]:
    """In the order of the flags."""
    everywhere = frozenset().union(*(each.nodes for each in cluster.lookupds.values()))
    return [
        LookupdFacts(each, sorted(everywhere - each.nodes)) for each in cluster.lookupds.values()
    ]


async def build_nodes(request: PageRequest) -> View:
    cluster = request.cluster
    configured = len(cluster.lookupds)
    vitals_of = request.context.problems.vitals
    facts = [
        NodeFacts(node, cluster.at, configured, vitals.disk if vitals else None)
        for node, vitals in [(node, vitals_of(node.key)) for node in cluster.nodes.values()]
    ]
    return View(
        "Nodes",
        tables={
            "nodes": make_table(request, NODES, facts),
            "lookupds": make_table(request, LOOKUPDS, lookupd_facts(cluster)),
        },
    )


NODES_PAGE = Page("nodes", "/nodes", build_nodes, "nodes.html", "nodes")


@dataclass(slots=True, eq=False)
class NodeTopic:
    """A topic's share on this node, and those of its channels; one without a part was tombstoned and is gone."""

    name: str
    part: NodePart | None
    channels: list[NodePart]
    is_tombstoned: bool

    @property
    def depth(self) -> int | None:
        return sum(each.counts.depth for each in (self.part, *self.channels)) if self.part else None

    @property
    def client_count(self) -> int:
        return sum(each.counts.client_count for each in self.channels)

    @property
    def states(self) -> list[State]:
        found = []
        if self.part and self.part.paused:
            found.append(State("warn", "paused"))
        if self.is_tombstoned:
            found.append(TOMBSTONED)
        return found


@dataclass(slots=True, eq=False)
class Registration:
    address: str
    is_known: bool
    remote_address: str

    @property
    def states(self) -> list[State]:
        return [
            State("ok", "knows this node") if self.is_known else State("warn", "does not know it")
        ]


TOPICS: TableSpec[NodeTopic] = TableSpec(
    name="topics",
    caption="Topics",
    columns=(
        link("name", "Topic", lambda topic: topic.name, lambda urls, topic: urls.topic(topic.name)),
        chips("state", "State", lambda topic: topic.states),
        number(
            "depth",
            "Depth",
            lambda topic: topic.depth,
            hint="Messages that wait in the topic and in its channels on this node",
        ),
        number(
            "in", "Published", lambda topic: in_s(topic.part) if topic.part else None, 2, texts.rate
        ),
        number(
            "messages",
            "Messages",
            lambda topic: topic.part.counts.message_count if topic.part else None,
            3,
        ),
        number("channels", "Channels", lambda topic: len(topic.channels), 3),
        number("clients", "Clients", lambda topic: topic.client_count, 3),
    ),
    key=lambda topic: topic.name,
    data=lambda topic: {
        "topic": topic.name,
        "node": topic.part.node if topic.part else "",
        "paused": "all" if topic.part and topic.part.paused else "none",
        "tombstoned": "yes" if topic.is_tombstoned else "",
    },
    searchable=lambda topic: topic.name,
    flags={
        "is:paused": lambda topic: topic.part is not None and topic.part.paused,
        "is:tombstoned": lambda topic: topic.is_tombstoned,
    },
    numbers=("depth", "clients", "channels"),
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
        chips("state", "State", lambda each: each.states, 1, lambda each: each.states[0].word),
        Column("remote", "Connected from", lambda each: each.remote_address, priority=2),
    ),
    key=lambda each: each.address,
    is_main=False,
    empty="No nsqlookupd is configured.",
)


def registrations(cluster: Cluster, node: Node) -> list[Registration]:
    pairs = (text.partition("/") for text in node.remote_addresses)
    remotes = {address: remote for address, _, remote in pairs}
    return [
        Registration(address, address in node.lookupds, remotes.get(address, ""))
        for address in cluster.lookupds
    ]


async def topics_of(cluster: Cluster, node: Node) -> list[NodeTopic]:
    found = []
    slices = Slices()
    for topic in cluster.topics.values():
        part, is_tombstoned = topic.parts.at(node.key), topic.name in node.tombstones
        if part is not None or is_tombstoned:
            shares = (channel.parts.at(node.key) for channel in topic.channels.values())
            channels = [each for each in shares if each is not None]
            found.append(NodeTopic(topic.name, part, channels, is_tombstoned))
        await slices.pause()
    return found


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


def log_state(figures: CommitLogFigures) -> State:
    if figures.failed:
        return State("crit", "failed", "It cannot be written until nsqd is restarted")
    if figures.refusal:
        return State("crit", "refuses messages")
    if figures.checkpoint_error:
        return State("warn", "no checkpoint")
    if figures.bad_quarters:
        return State("warn", "a file is bad", "A write failed, and went to another of its files")
    return State("ok", "works")


def time_text(log: CommitLog) -> str:
    if log.median_ms is None:
        return texts.UNKNOWN
    return f"half {texts.within(log.median_ms)}, 99 % {texts.within(log.most_ms)}"


def log_texts(log: CommitLog) -> dict[str, str]:
    """All of it is what the node says: numbers are bounded, but may be senseless."""
    said = log.figures
    size, needed = max(said.size_bytes, 0), max(said.needed_bytes, 0)
    checkpoint: str = "none yet"
    if said.last_checkpoint > 0:
        took = texts.short_time(max(said.last_checkpoint_ms, 0) / 1e3)
        carried = texts.size(max(said.carried_bytes, 0))
        count = texts.count(said.checkpoint_count)
        rest = f", took {took}, carried {carried}; {count} since it started"
        checkpoint = texts.Timed("last ", texts.stamp(said.last_checkpoint), rest)
    return {
        "log-mode": said.mode[:LOG_TEXT_MAX],
        "log-commits": f"{texts.rate(log.commits_s)}, {texts.count(said.commit_count)} since it started",
        "log-messages": texts.mean(log.messages_per_commit),
        "log-time": time_text(log),
        "log-needed": f"{texts.share(needed / size) if size else texts.UNKNOWN} of {texts.size(size)}",
        "log-checkpoint": checkpoint,
        "log-trouble": (said.refusal or said.checkpoint_error)[:LOG_TEXT_MAX],
    }


def show_log(view: View, log: CommitLog | None) -> None:
    """Nothing for a node without one."""
    view.set_state("log", log_state(log.figures) if log else None)
    view.texts |= log_texts(log or NO_LOG)
    view.shown["log-trouble-shown"] = bool(view.texts["log-trouble"])


async def build_node(request: PageRequest) -> View:
    cluster, key = request.cluster, request.match["node"]
    urls = request.context.urls
    node = cluster.nodes.get(key)
    if node is None:
        near = await find_similar_names(key, cluster.nodes)
        raise PageNotFoundError("node", key, [(each, urls.node(each)) for each in near])
    problems = own_problems(request, node=key)
    error = node.error or ("" if node.health in ("", "OK") else node.health)
    view = View(
        title=node.key,
        crumbs=[Link("Nodes", urls.to("/nodes"))],
        texts={
            "in": texts.rate(in_s(node)),
            "depth": texts.short(node.counts.depth),
            "messages": texts.short(node.counts.message_count),
            "clients": texts.count(node.counts.client_count),
            "memory": texts.size(node.memory_bytes),
            "host": node.hostname,
            **vitals_texts(node, request.context.problems.vitals(key)),
            "tcp": f"{node.broadcast_address}:{node.tcp_port}",
            "up": texts.duration(up_s(node, cluster.at)),
            "since": texts.stamp(node.since),
            "error": error,
        },
        states={"node": node_state(node, cluster.at)},
        shown={
            "error": bool(error),
            "drain": node.state is NodeState.UP and node.drain is None,
            "cancel-drain": node.state is NodeState.UP and node.drain is not None,
            "acknowledge": node.unclean_start is not None,
            "problems-shown": bool(problems.matched),
            # One that is listed, or named by a flag, would come back at once.
            "forget": node.state is NodeState.DOWN and bool(cluster.lookupds) and not node.lookupds,
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
                request.query, request.context.options.history_ns / 1e9, node_charts(node.key)
            ),
            "pictures": make_node_pictures(request, node.key),
        },
    )
    show_log(view, node.commit_log)
    return view


NODE_PAGE = Page("node", "/nodes/{node}", build_node, "node.html", "nodes")


@dataclass(slots=True, eq=False)
class Inactive:
    """A topic (channel '') or channel that only nsqlookupd know, and which of them."""

    topic: str
    channel: str
    lookupds: list[str]


INACTIVE: TableSpec[Inactive] = TableSpec(
    name="inactive",
    caption="Inactive topics and channels",
    columns=(
        link("topic", "Topic", lambda each: each.topic, lambda urls, each: urls.topic(each.topic)),
        Column("channel", "Channel", lambda each: each.channel),
        Column("lookupds", "Known to", lambda each: ", ".join(each.lookupds), priority=2),
    ),
    key=lambda each: f"{each.topic}/{each.channel}" if each.channel else each.topic,
    data=lambda each: {"topic": each.topic, "channel": each.channel, "inactive": "yes"},
    searchable=lambda each: f"{each.topic} {each.channel}",
    flags={"is:ephemeral": lambda each: "#" in each.topic + each.channel},
    can_select=True,
    has_actions=True,
    empty="Every topic that nsqlookupd know has an nsqd.",
    search_label="Search inactive",
)


def inactive_of(cluster: Cluster) -> list[Inactive]:
    """By name, each topic before its channels."""
    found: dict[tuple[str, str], Inactive] = {}
    for topic in cluster.topics.values():
        if not topic.parts:
            for channel in ("", *topic.channels):
                found[topic.name, channel] = Inactive(topic.name, channel, [])
    for lookupd in cluster.lookupds.values():
        for name, channels in lookupd.topics.items():
            for channel in ("", *channels):
                each = found.setdefault((name, channel), Inactive(name, channel, []))
                each.lookupds.append(lookupd.address)
    return [found[key] for key in sorted(found)]


async def build_lookup(request: PageRequest) -> View:
    cluster = request.cluster
    return View(
        "Lookup",
        tables={
            "inactive": make_table(request, INACTIVE, inactive_of(cluster)),
            "lookupds": make_table(request, LOOKUPDS, lookupd_facts(cluster)),
        },
        facts={"has_lookupds": bool(cluster.lookupds)},
    )


LOOKUP_PAGE = Page("lookup", "/lookup", build_lookup, "lookup.html", "lookup")
