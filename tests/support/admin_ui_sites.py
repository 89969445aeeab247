"""Clusters that are out of the ordinary, and the pages of them that are looked at besides those of admin_ui_pages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from nsqfast.nsqadmin.cluster.model import Rates
from nsqfast.nsqadmin.problems.cases import Severity
from support.admin_cluster import (
    AT,
    example_cluster,
    make_channel,
    make_cluster,
    make_entry,
    make_lookupd,
    make_node,
    make_problem,
    make_topic,
    many_topics,
)
from support.admin_history import fill_history
from support.admin_pages import AdminPages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nsqfast.nsqadmin.access.audit import Entry
    from nsqfast.nsqadmin.cluster.model import Cluster
    from nsqfast.nsqadmin.problems.report import Problem

BAD = "<img src=x onerror=alert(1)>"
WORSE = '"><script>alert(2)</script>'
MANY = 9_007_199_254_740_991


class Site(NamedTuple):
    """`paths`: page by name, below --base-path."""

    cluster: Callable[[], Cluster]
    paths: Mapping[str, str]
    flags: Sequence[str] = ()
    problems: Sequence[Problem] = ()
    entries: Sequence[Entry] = ()
    scripts: bool = True

    def start(self) -> AdminPages:
        """To be entered."""
        return AdminPages(
            self.cluster(),
            *self.flags,
            problems=self.problems,
            entries=self.entries,
            fill=fill_history,
        )


def no_cluster() -> Cluster:
    """Nothing answers yet."""
    return make_cluster([], nodes=[])


def silent_lookupds() -> Cluster:
    """None of them answers any more."""
    lookupds = [make_lookupd(number, is_up=False) for number in range(2)]
    return replace(example_cluster(), lookupds={each.address: each for each in lookupds})


def large_numbers() -> Cluster:
    """As many digits as there can be."""
    names = ["m" * 64, "orders"]
    counts = dict.fromkeys(
        ("depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count"), MANY
    )
    counts |= {"timeout_count": MANY, "client_count": 99_999, "message_count": MANY}
    rates = Rates(12_345_678.9, 12_345_678.9, 999_999.5)
    topics = [
        make_topic(
            name,
            [
                make_channel(name, "billing", rates=rates, oldest_s=9e7, slope=1e6, **counts),
                make_channel(name, "c" * 64, rates=rates, **counts),
            ],
            rates=rates,
            depth=MANY,
            message_count=MANY,
        )
        for name in names
    ]
    nodes = [make_node(0, rates=Rates(1e9, 1e9), memory_bytes=1 << 49, start_time=1)]
    return make_cluster(topics, nodes)


def hostile_names() -> Cluster:
    """Names and texts that would like to be markup."""
    node = make_node(0, hostname=BAD, version=WORSE, error=BAD, health=WORSE, lookupds=())
    topics = [
        make_topic(BAD, [make_channel(BAD, WORSE, depth=4, client_count=2)], depth=3),
        make_topic(WORSE, nodes=()),
        make_topic("=1+2", [make_channel("=1+2", "@c")]),
    ]
    return make_cluster(topics, [node], [make_lookupd(0, version=BAD)])


HOSTILE_PROBLEM = make_problem(0, topic=BAD, channel=WORSE, text=WORSE, check=BAD)
HOSTILE_ENTRY = make_entry(0, user=BAD, target={"topic": BAD, "channel": WORSE})
LOOKUPD_PROBLEM = make_problem(
    0,
    Severity.WARN,
    rule="lookupd_down",
    topic="",
    channel="",
    node="10.0.1.1:4161",
    text="connection refused",
)
LONG_PROBLEM = make_problem(
    0, topic="m" * 64, channel="c" * 64, since=AT - 9e6, text=f"{MANY:,} messages wait"
)

SITES = {
    "nothing": Site(
        no_cluster,
        {"overview-empty": "/", "topics-empty": "/topics", "nodes-empty": "/nodes"}
        | {"problems-empty": "/problems", "audit-empty": "/audit", "lookup-empty": "/lookup"},
    ),
    "lookupds": Site(
        silent_lookupds,
        {"overview-no-lookupd": "/", "node-stale": "/nodes/10.0.0.2:4151"},
        problems=[LOOKUPD_PROBLEM],
    ),
    "digits": Site(
        large_numbers,
        {
            "overview-digits": "/",
            "topics-digits": "/topics",
            "topic-digits": "/topics/orders",
            "channel-digits": "/topics/orders/billing",
            "node-digits": "/nodes/10.0.0.1:4151",
            "counter-digits": "/counter",
        },
        problems=[LONG_PROBLEM],
    ),
    "hostile": Site(
        hostile_names,
        {"overview-hostile": "/", "topics-hostile": "/topics", "audit-hostile": "/audit"},
        problems=[HOSTILE_PROBLEM],
        entries=[HOSTILE_ENTRY],
    ),
    "many": Site(
        lambda: many_topics(203, seed=1),
        {"topics-last": "/topics?page=3", "topics-none": "/topics?q=zz"},
    ),
    "viewer": Site(
        example_cluster,
        {"topic-viewer": "/topics/orders", "messages-viewer": "/topics/orders/billing/messages"},
        flags=["--admin-user=ana"],
    ),
    "plain": Site(
        example_cluster,
        {"topic-no-script": "/topics/orders", "topics-no-script": "/topics"},
        scripts=False,
    ),
}
