"""nsqadmin's JSON API on a large cluster, whose nodes are simulated: their answers are ready and cost little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.scenario import NOTHING, OTHER, Row, at_least
from support.simulated_cluster import SimulatedCluster

if TYPE_CHECKING:
    from server.admin import Admin
    from server.duel import Duel, Samples

NODES = 100
TOPICS = 500
CONNECTIONS = 16
SECONDS = 3.0
TARGETS = (at_least(3.0),)


@pytest.mark.parametrize("mode", ["lookupd", "direct"])
@pytest.mark.parametrize("path", ["/api/topics", "/api/nodes"])
def bench_admin_api(duel: Duel, path: str, mode: str) -> None:
    """Every answer is asked of the cluster anew; sixteen scripts ask, then one alone."""
    nodes = duel.scale.count(NODES)
    title = f"nsqadmin, {mode}: {path}, {nodes} nodes × {TOPICS} topics"
    many = Row(f"{title}, {CONNECTIONS} connections", "none", NOTHING, OTHER, TARGETS)
    one = Row(f"{title}, 1 connection", "none", NOTHING, OTHER)
    with SimulatedCluster(nodes, TOPICS, 1, consumers=0) as cluster:
        flag, addresses = (
            ("--lookupd-http-address", cluster.lookupds)
            if mode == "lookupd"
            else ("--nsqd-http-address", cluster.nodes)
        )

        def measure(admin: Admin) -> Samples:
            seconds = duel.scale.seconds(SECONDS)
            return {
                many: admin.ask(path, CONNECTIONS, seconds),
                one: admin.ask(path, 1, seconds),
            }

        duel.run_admins(measure, [f"{flag}={address}" for address in addresses])
