"""nsqadmin's JSON API on a large cluster, whose nodes are simulated: their answers are prepared and cheap.

Every answer queries the cluster again: nsqfast, too, caches none. First sixteen scripts ask, then one alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.scenario import NOTHING, OTHER, Row, at_least
from support.simulated_cluster import SimulatedCluster

if TYPE_CHECKING:
    from server.admin import Admin
    from server.duel import Duel, Samples
    from server.scenario import Target

NODES = 100
TOPICS = 500
CONNECTIONS = 16
SECONDS = 3.0
SHORT_SECONDS = 1.5  # for what has no target
FLAGS = {"lookupd": "--lookupd-http-address", "direct": "--nsqd-http-address"}
WHOLE = ("/api/topics", "/api/nodes")
PARTS = (
    "/api/topics/topic-0001",
    "/api/topics/topic-0001/channel-0",
    "/api/nodes/{node}",
    "/api/counter",
)
TARGETS = (at_least(3.0),)


@pytest.mark.parametrize("mode", FLAGS)
@pytest.mark.parametrize("path", WHOLE)
def bench_admin_api(duel: Duel, path: str, mode: str) -> None:
    """Everything, with nsqlookupd and without."""
    compare(duel, path, mode, duel.scale.count(NODES), TOPICS, TARGETS)


@pytest.mark.parametrize("path", PARTS)
def bench_admin_api_parts(duel: Duel, path: str) -> None:
    """One topic, channel or node, and the counter."""
    compare(duel, path, "lookupd", duel.scale.count(NODES), TOPICS)


@pytest.mark.parametrize(
    ("path", "nodes", "topics"),
    [
        ("/api/topics", 2, 10),
        ("/api/topics", 2, 1000),
        ("/api/topics", 2, 10_000),
        ("/api/nodes", 10, TOPICS),
        ("/api/nodes", 1000, TOPICS),
    ],
)
def bench_admin_api_sizes(duel: Duel, path: str, nodes: int, topics: int) -> None:
    """How it grows with the cluster."""
    compare(duel, path, "lookupd", duel.scale.count(nodes), duel.scale.count(topics))


def compare(
    duel: Duel, path: str, mode: str, nodes: int, topics: int, targets: tuple[Target, ...] = ()
) -> None:
    """Two rows."""
    shown = path.format(node="N").replace("topic-0001", "T").replace("channel-0", "C")
    title = f"nsqadmin, {mode}: {shown}, {nodes} nodes × {topics} topics"
    many = Row(f"{title}, {CONNECTIONS} connections", "none", NOTHING, OTHER, targets)
    one = Row(f"{title}, 1 connection", "none", NOTHING, OTHER)
    with SimulatedCluster(nodes, topics, 1, consumers=0) as cluster:
        addresses = cluster.lookupds if mode == "lookupd" else cluster.nodes
        target = path.format(node=cluster.nodes[0])

        def measure(admin: Admin) -> Samples:
            seconds = duel.scale.seconds(SECONDS if targets else SHORT_SECONDS)
            return {
                many: admin.ask(target, CONNECTIONS, seconds),
                one: admin.ask(target, 1, seconds),
            }

        duel.run_admins(measure, [f"{FLAGS[mode]}={address}" for address in addresses])
