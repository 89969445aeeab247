"""/nodes: every nsqd with its state and numbers, and every nsqlookupd with the nodes that it lacks."""

from dataclasses import dataclass

from nsqfast.nsqadmin.cluster.model import Cluster, Lookupd, Node, NodeState
from nsqfast.nsqadmin.cluster.probes import Disk
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.elements import State
from nsqfast.nsqadmin.web.page.parts import node_state
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.pages import Page
from nsqfast.nsqadmin.web.search import Searchable
from nsqfast.nsqadmin.web.tables import Column, TableSpec, make_table
from nsqfast.nsqadmin.web.view import View

MISSING_SHOWN = 3


@dataclass(slots=True, eq=False)
class NodeFacts:
    """A row of the table of nodes."""

    node: Node
    at: float
    lookupds: int  # configured
    disk: Disk | None = None

    @property
    def states(self) -> list[State]:
        """The worst first."""
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
    known: int
    missing: list[str]

    @property
    def states(self) -> list[State]:
        """The worst first."""
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


def _up_s(facts: NodeFacts) -> float | None:
    start = facts.node.start_time
    return facts.at - start if start and facts.node.state is NodeState.UP else None


NODES: TableSpec[NodeFacts] = TableSpec(
    name="nodes",
    caption="nsqd",
    columns=(
        Column(
            "node",
            "Node",
            lambda facts: facts.node.key,
            href=lambda request, facts: request.context.urls.node(facts.node.key),
        ),
        Column("host", "Host", lambda facts: facts.node.hostname, priority=2),
        Column(
            "state",
            "State",
            lambda facts: ", ".join(state.word for state in facts.states),
            chips=lambda facts: facts.states,
            kind="chips",
            priority=2,
            can_sort=False,
        ),
        Column(
            "in",
            "Published",
            lambda facts: facts.node.rates.in_s if facts.node.rates else None,
            texts.rate,
            "number",
            2,
        ),
        Column("depth", "Depth", lambda facts: facts.node.counts.depth, texts.count, "number", 2),
        Column("topics", "Topics", lambda facts: facts.node.topic_count, texts.count, "number", 3),
        Column(
            "clients",
            "Clients",
            lambda facts: facts.node.counts.client_count,
            texts.count,
            "number",
            4,
        ),
        Column("memory", "Memory", lambda facts: facts.node.memory_bytes, texts.size, "number", 4),
        Column(
            "disk",
            "Disk free",
            lambda facts: facts.disk.free_bytes if facts.disk else None,
            texts.size,
            "number",
            3,
            help="Of the file system with its data; only nsqfast-nsqd says",
        ),
        Column("version", "Version", lambda facts: facts.node.version, priority=3),
        Column(
            "tcp_port", "TCP port", lambda facts: facts.node.tcp_port, kind="number", priority=4
        ),
        Column(
            "zone",
            "Zone",
            lambda facts: "/".join(
                filter(None, (facts.node.topology_region, facts.node.topology_zone))
            ),
            priority=4,
        ),
        Column("up", "Up for", _up_s, texts.duration, "number", 4),
    ),
    key=lambda facts: facts.node.key,
    data=lambda facts: {"node": facts.node.key},
    kind=lambda facts: "crit" if facts.states[0].kind == "crit" else "",
    searchable=Searchable(
        text=lambda facts: f"{facts.node.key} {facts.node.hostname} {facts.node.version}",
        flags={
            "is:up": lambda facts: facts.node.state is NodeState.UP,
            "is:stale": lambda facts: facts.node.state is NodeState.STALE,
            "is:down": lambda facts: facts.node.state is NodeState.DOWN,
            "is:draining": lambda facts: facts.node.drain is not None,
            "is:outdated": lambda facts: facts.node.is_out_of_date,
        },
        numbers={
            "depth": lambda facts: facts.node.counts.depth,
            "rate": lambda facts: facts.node.rates.in_s if facts.node.rates else None,
            "topics": lambda facts: facts.node.topic_count,
            "clients": lambda facts: facts.node.counts.client_count,
        },
    ),
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
        Column(
            "state",
            "State",
            lambda facts: ", ".join(state.word for state in facts.states),
            chips=lambda facts: facts.states,
            kind="chips",
            can_sort=False,
        ),
        Column(
            "since", "Since", lambda facts: facts.lookupd.since, texts.stamp, "number", priority=3
        ),
        Column("version", "Version", lambda facts: facts.lookupd.version, priority=3),
        Column(
            "nodes",
            "Nodes",
            lambda facts: len(facts.lookupd.nodes),
            texts.count,
            "number",
            2,
        ),
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
        LookupdFacts(each, len(everywhere), sorted(everywhere - each.nodes))
        for each in cluster.lookupds.values()
    ]


async def build(request: PageRequest) -> View:
    """Two tables."""
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


PAGE = Page("nodes", "/nodes", build, "nodes.html", "nodes")
