"""Clusters made by hand, for what reads them: pages, searches, exports. No poller, no nsqd."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import astuple

from nsqfast import __version__
from nsqfast.nsqadmin.access.audit import Entry
from nsqfast.nsqadmin.cluster.answers import Client, CommitLogFigures
from nsqfast.nsqadmin.cluster.commit_log import CommitLog
from nsqfast.nsqadmin.cluster.model import (
    NO_PARTS,
    RATES,
    VALUES,
    Channel,
    Cluster,
    Counts,
    Lookupd,
    Node,
    NodePart,
    NodeParts,
    NodeState,
    Rates,
    Rows,
    Topic,
    Totals,
)
from nsqfast.nsqadmin.problems.cases import Severity
from nsqfast.nsqadmin.problems.report import Problem
from nsqfast.nsqadmin.problems.silences import Scope, Silence
from nsqfast.nsqadmin.results import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

AT = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


def make_node(number: int = 0, state: NodeState = NodeState.UP, **changes) -> Node:
    given = {
        "key": f"10.0.0.{number + 1}:4151",
        "hostname": f"w{number + 1}",
        "broadcast_address": f"10.0.0.{number + 1}",
        "tcp_port": 4150,
        "http_port": 4151,
        "version": "1.3.0",
        "state": state,
        "since": AT - 3600,
        "answered_at": AT if state is NodeState.UP else AT - 14,
        "error": "" if state is NodeState.UP else "connection refused",
        "health": "OK",
        "start_time": int(AT - 86400),
        "is_out_of_date": False,
        "counts": Counts(depth=1234, message_count=99_000, client_count=7),
        "rates": Rates(120.5, 118.0),
        "topic_count": 3,
        "memory_bytes": 48 << 20,
        "lookupds": ("10.0.1.1:4161",),
        "remote_addresses": (f"10.0.1.1:4161/10.0.0.{number + 1}:40000",),
    }
    return Node(**(given | changes))


def make_log(**changes) -> CommitLog:
    given = {
        "mode": "always",
        "size_bytes": 256 << 20,
        "needed_bytes": 31 << 20,
        "commit_count": 1_204_117,
        "message_count": 88_100_000,
        "checkpoint_count": 12,
        "last_checkpoint": int(AT - 200),
        "last_checkpoint_ms": 310,
        "carried_bytes": 4 << 20,
    }
    return CommitLog(CommitLogFigures(**(given | changes)), 412.0, 73.2, 2.5, 10.0)


def make_client(number: int = 0, **changes) -> Client:
    given = {
        "client_id": f"worker-{number}",
        "hostname": f"worker-{number}.example",
        "remote_address": f"10.0.2.{number + 1}:51000",
        "user_agent": f"nsqfast/{__version__}",
        "ready_count": 25,
        "in_flight_count": 13,
        "message_count": 120_000,
        "finish_count": 119_900,
        "requeue_count": 87,
        "connect_ts": int(AT - 3600),
        "tls": number == 0,
        "tls_version": "TLS1.3" if number == 0 else "",
        "snappy": number == 1,
        "sample_rate": 20 if number == 2 else 0,
    }
    return Client(**(given | changes))


def join_parts(parts: Sequence[NodePart]) -> NodeParts:
    """As a tick has them."""
    if not parts:
        return NO_PARTS
    values, rates = np.empty((len(parts), VALUES), np.int64), np.full((len(parts), RATES), np.nan)
    for row, part in enumerate(parts):
        told = part.paused, part.oldest_ms, part.held_ms, part.is_failing
        told += part.is_refusing, part.has_dead_letters
        values[row] = [*astuple(part.counts), *told]
        if part.rates is not None:
            rates[row] = astuple(part.rates)
    every = np.arange(len(parts))
    rows = Rows([part.node for part in parts], every, every, values, rates)
    return NodeParts(rows, 0, len(parts), sum(part.paused for part in parts))


def make_channel(
    topic: str,
    name: str,
    *,
    nodes: Sequence[str] = ("10.0.0.1:4151",),
    paused_nodes: int = 0,
    rates: Rates | None = None,
    slope: float | None = None,
    oldest_s: float | None = None,
    **counts: int,
) -> Channel:
    """`counts` are those of the whole; the first node has all of them."""
    whole = Counts(**counts)
    parts = [
        NodePart(node, whole if index == 0 else Counts(), index < paused_nodes, rates)
        for index, node in enumerate(nodes)
    ]
    return Channel(topic, name, whole, join_parts(parts), rates, slope, oldest_s)


def make_topic(
    name: str,
    channels: Iterable[Channel] = (),
    *,
    nodes: Sequence[str] = ("10.0.0.1:4151",),
    paused_nodes: int = 0,
    rates: Rates | None = None,
    **counts: int,
) -> Topic:
    """Without nodes it is an inactive one."""
    whole = Counts(**counts)
    parts = [
        NodePart(node, whole if index == 0 else Counts(), index < paused_nodes, rates)
        for index, node in enumerate(nodes)
    ]
    return Topic(name, whole, join_parts(parts), {each.name: each for each in channels}, rates)


def make_cluster(
    topics: Iterable[Topic] = (),
    nodes: Iterable[Node] | None = None,
    lookupds: Iterable[Lookupd] = (),
    tick: int = 1,
    at: float = AT,
) -> Cluster:
    """Totals are those of what is given."""
    known = {node.key: node for node in (nodes if nodes is not None else [make_node(0)])}
    named = {topic.name: topic for topic in sorted(topics, key=lambda topic: topic.name)}
    channels = [channel for topic in named.values() for channel in topic.channels.values()]
    totals = Totals(
        in_s=sum(topic.rates.in_s for topic in named.values() if topic.rates),
        out_s=sum(channel.rates.out_s for channel in channels if channel.rates),
        depth=sum(queue.counts.depth for queue in (*named.values(), *channels)),
        in_flight_count=sum(channel.counts.in_flight_count for channel in channels),
        requeue_s=0.0,
        nodes_up=sum(node.state is NodeState.UP for node in known.values()),
        nodes_known=len(known),
    )
    found = {each.address: each for each in lookupds}
    return Cluster(tick, at, totals, named, known, found)


def make_lookupd(number: int = 0, *, is_up: bool = True, **changes) -> Lookupd:
    given = {
        "address": f"10.0.1.{number + 1}:4161",
        "is_up": is_up,
        "since": AT - 600,
        "answered_at": AT if is_up else AT - 600,
        "error": "" if is_up else "connection refused",
        "version": "1.3.0",
        "nodes": frozenset({"10.0.0.1:4151"}),
    }
    return Lookupd(**(given | changes))


def many_topics(count: int, seed: int, **changes) -> Cluster:
    """Each with up to three channels and numbers by `seed`."""
    dice = random.Random(seed)
    topics = []
    for number in range(count):
        name = f"topic-{number:05d}"
        channels = [
            make_channel(
                name,
                channel,
                rates=Rates(dice.random() * 100, dice.random() * 100),
                oldest_s=dice.choice([None, dice.random() * 9000]),
                depth=dice.randrange(10_000),
                client_count=dice.randrange(4),
                in_flight_count=dice.randrange(100),
            )
            for channel in ["archive", "billing", "metrics#ephemeral"][: dice.randrange(4)]
        ]
        rates = Rates(dice.random() * 100)
        topics.append(make_topic(name, channels, rates=rates, depth=dice.randrange(100)))
    return make_cluster(topics, **changes)


def example_cluster(**changes) -> Cluster:
    """Of everything something: what a page can show."""
    up, late, down = (
        make_node(0, tombstones=frozenset({"clicks"}), commit_log=make_log()),
        make_node(1, NodeState.STALE, is_out_of_date=True, version="1.2.1"),
        make_node(
            2,
            NodeState.DOWN,
            rates=None,
            memory_bytes=None,
            lookupds=(),
            commit_log=make_log(failed=True, refusal="it cannot be written until a restart"),
        ),
    )
    keys = [up.key, late.key, down.key]
    topics = [
        make_topic(
            "orders",
            [
                make_channel(
                    "orders",
                    "billing",
                    nodes=keys,
                    rates=Rates(80.0),
                    depth=184_201,
                    backend_depth=174_201,
                    oldest_s=840.0,
                    slope=12.0,
                ),
                make_channel(
                    "orders",
                    "archive",
                    nodes=keys,
                    paused_nodes=1,
                    rates=Rates(80.0, 79.5, 0.5),
                    depth=12,
                    client_count=3,
                    in_flight_count=40,
                ),
                make_channel("orders", "tail#ephemeral", rates=Rates(80.0, 80.0), client_count=1),
            ],
            nodes=keys,
            rates=Rates(80.0),
            message_count=88_000_000,
        ),
        make_topic(
            "clicks",
            [
                make_channel(
                    "clicks",
                    "etl",
                    rates=Rates(1240.0, 900.0),
                    depth=91_000,
                    client_count=2,
                    slope=340.0,
                    deferred_count=12,
                )
            ],
            paused_nodes=1,
            rates=Rates(1240.0),
            depth=5,
        ),
        make_topic(
            "x#ephemeral",
            [make_channel("x#ephemeral", "c#ephemeral", client_count=1)],
            rates=Rates(0.0),
        ),
        make_topic("n" * 64, [make_channel("n" * 64, "c" * 64, depth=1)], rates=Rates(0.1)),
        make_topic("old", [make_channel("old", "gone", nodes=())], nodes=()),
    ]
    lookupds = [
        make_lookupd(0, nodes=frozenset(keys[:2]), topics={"old": ["gone"]}),
        make_lookupd(1, nodes=frozenset(keys[:1])),
        make_lookupd(2, is_up=False, nodes=frozenset()),
    ]
    return make_cluster(
        topics,
        [up, late, down],
        lookupds,
        **changes,
    )


def make_problem(number: int = 0, severity: Severity = Severity.CRIT, **changes) -> Problem:
    given = {
        "id": f"p{number}",
        "rule": "no_consumers",
        "severity": severity,
        "topic": "orders",
        "channel": "billing",
        "node": "",
        "since": AT - 840,
        "text": "184,201 messages wait, no consumer for 14 min",
        "check": "Is the consumer running? Look for its last address in the channel's clients.",
        "muted_until": 0.0,
        "muted_by": None,
    }
    return Problem(**(given | changes))


def example_problems() -> list[Problem]:
    return [
        make_problem(0),
        make_problem(
            1,
            rule="node_down",
            topic="",
            channel="",
            node="10.0.0.3:4151",
            text="connection refused since 21:13",
        ),
        make_problem(
            2,
            Severity.WARN,
            rule="backlog_grows",
            topic="clicks",
            channel="etl",
            text="+340/s for 6 min",
            muted_until=AT + 3600,
            muted_by=Silence(Scope.PROBLEM, "p2", AT + 3600, "it is known", "ana", AT),
        ),
        make_problem(
            3,
            Severity.INFO,
            rule="version_behind",
            topic="",
            channel="",
            node="10.0.0.2:4151",
            text="1.2.1, others have 1.3.0",
        ),
    ]


def make_entry(number: int = 0, **changes) -> Entry:
    given = {
        "time": f"2023-11-14T22:{number:02d}:00Z",
        "user": "ana",
        "role": "admin",
        "ip": "10.1.2.3",
        "action": "pause_channel",
        "target": {"topic": "orders", "channel": "billing"},
        "effect": {},
        "results": [
            Result("10.0.0.1:4151", ok=True),
            Result("10.0.0.3:4151", ok=False, text="connection refused"),
        ],
        "outcome": "partial",
        "request_id": f"r{number}",
    }
    return Entry(**(given | changes))


def example_entries() -> list[Entry]:
    return [
        make_entry(0),
        make_entry(1, action="login", target={}, results=[], outcome="refused", user="bob"),
        make_entry(
            2,
            action="export",
            target={"view": "/topics", "table": "topics"},
            results=[],
            outcome="ok",
        ),
    ]
