"""The rules of "what is wrong now", tick by tick on clusters built by hand; no sockets, no clock."""

import json
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.cluster.answers import Client, DrainFigures, UncleanStartFigures
from nsqfast.nsqadmin.cluster.model import Channel, Counts, NodePart, NodeState, Rates, Topic
from nsqfast.nsqadmin.cluster.probes import Disk, Probes, Reading, Ready, Vitals
from nsqfast.nsqadmin.options import parse
from nsqfast.nsqadmin.problems.alerts import alertmanager_form, make_event
from nsqfast.nsqadmin.problems.cases import KeptCase, Severity
from nsqfast.nsqadmin.problems.report import Problems
from nsqfast.nsqadmin.problems.silences import SILENCES_MAX, Scope, Silence
from support.admin_cluster import join_parts, make_cluster, make_lookupd, make_node, make_topic

STEP_S = 2.0
START = 1_700_000_000.0
A, B, C = "a:4151", "b:4151", "c:4151"


class Known(Probes):
    """What would have been asked for, told by the test."""

    def __init__(self):
        super().__init__(None)
        self.counts, self.disks, self.holders, self.letters, self.wanted = {}, {}, {}, {}, []

    def ready(self, names):
        self.wanted.append(names)
        letters = self.letters.get(names, ("", ""))
        return Ready(self.counts.get(names), 0.0, self.holders.get(names), letters)

    def vitals(self, node):
        disk = self.disks.get(node)
        if disk is None:
            return None
        found = Vitals(1)
        found.add(Reading(0.0, "", disk, None, None, (0.0, 0.0), ()))
        return found


class Scene:
    """A cluster of nodes A and B that a test changes between ticks."""

    def __init__(self, *flags, nodes=(A, B)):
        self.problems = Problems(parse(list(flags)))
        self.probes = Known()
        self.problems._probes = self.probes
        for group in ("_channels", "_nodes"):
            getattr(self.problems._rules, group)._probes = self.probes
        self.nodes = {key: node(key) for key in nodes}
        self.topics, self.lookupds = {}, {}
        self.tick, self.at = 0, START

    def topic(self, name, *channels, parts=None, **counts):
        parts = parts or [part(key) for key in self.nodes]
        total = Counts(**counts) if counts else add(parts)
        self.topics[name] = Topic(
            name, total, join_parts(parts), {one.name: one for one in channels}, add_rates(parts)
        )

    def channel(self, *parts, topic="orders", name="billing", slope=None, oldest_s=None):
        rates = add_rates(parts)
        made = Channel(topic, name, add(parts), join_parts(parts), rates, slope, oldest_s)
        self.topic(topic, made)

    def run(self, seconds=0.0, step_s=STEP_S):
        """As many ticks as begin in that time, one at least; then what is reported."""
        end = self.at + seconds
        while True:
            self.tick += 1
            self.at += step_s
            lookupds = self.lookupds.values()
            cluster = make_cluster(
                self.topics.values(), self.nodes.values(), lookupds, self.tick, self.at
            )
            self.problems.take(cluster)
            if self.at + step_s > end:
                return self.rules()

    def rules(self):
        return [problem.rule for problem in self.problems.found]

    @property
    def only(self):
        [problem] = self.problems.found
        return problem

    def state(self, key, state, error="connection refused"):
        self.nodes[key] = replace(
            self.nodes[key],
            state=state,
            since=self.at,
            error="" if state is NodeState.UP else error,
        )


def node(key):
    host, port = key.split(":")
    made = make_node(0, key=key, hostname=host, http_port=int(port), since=START)
    return replace(made, answered_at=START, counts=Counts(), rates=None, memory_bytes=None)


def part(key, *, paused=False, rates=None, known=True, held_s=0.0, told=None, **counts):
    """`told`: what else only ours say."""
    rates = (rates or Rates(0.0)) if known else None
    held_ms = int(held_s * 1000)
    return NodePart(key, Counts(**counts), paused, rates, held_ms=held_ms, **(told or {}))


def add(parts):
    names = ("depth", "in_flight_count", "deferred_count", "client_count", "message_count")
    return Counts(**{name: sum(getattr(one.counts, name) for one in parts) for name in names})


def add_rates(parts):
    if any(one.rates is None for one in parts):
        return None
    return Rates(
        *(
            sum(getattr(one.rates, name) for one in parts)
            for name in ("in_s", "out_s", "requeue_s", "timeout_s")
        )
    )


# ---- no consumers


def test_no_consumers_is_told_after_its_time_and_clears_after_three_good_ticks():
    scene = Scene()
    scene.channel(part(A, depth=184_000), part(B, depth=201), oldest_s=840)
    assert scene.run(60) == []
    assert scene.run() == ["no_consumers"]
    problem = scene.only
    assert problem.severity is Severity.CRIT
    assert (problem.topic, problem.channel, problem.node) == ("orders", "billing", "")
    assert problem.since == START + STEP_S
    assert problem.text == (
        "184,201 messages wait, the oldest for 14 min; no consumers since 22:13 UTC"
    )
    assert problem.check
    scene.channel(part(A, depth=184_000, client_count=1), part(B, depth=201))
    assert [scene.run() for _ in range(3)] == [["no_consumers"], ["no_consumers"], []]


def test_the_id_lasts_and_tells_names_apart():
    scene = Scene("--problem-no-consumers=0s")
    one, two = (
        Channel("a/b", name, Counts(depth=1), join_parts([part(A, depth=1)]), Rates(0.0))
        for name in ("c", "c/d")
    )
    three = Channel("a", "b/c", Counts(depth=1), join_parts([part(A, depth=1)]), Rates(0.0))
    scene.topic("a/b", one, two)
    scene.topic("a", three)
    scene.run()
    before = {problem.id for problem in scene.problems.found}
    assert len(before) == 3
    scene.run(10)
    assert {problem.id for problem in scene.problems.found} == before


def test_a_good_tick_while_it_waits_begins_anew_and_later_changes_nothing():
    scene = Scene()
    for _ in range(4):
        scene.channel(part(A, depth=5))
        assert scene.run(50) == []
        scene.channel(part(A, depth=5, client_count=1))
        assert scene.run() == []
    scene.channel(part(A, depth=5))
    scene.run(70)
    since = scene.only.since
    for _ in range(5):
        scene.channel(part(A, depth=5, client_count=1))
        assert scene.run(4) == ["no_consumers"]
        scene.channel(part(A, depth=5))
        assert scene.run() == ["no_consumers"]
    assert scene.only.since == since


def test_messages_on_a_node_that_hides_the_topic_miss_no_consumers():
    scene = Scene()
    scene.nodes[B] = replace(scene.nodes[B], tombstones=frozenset(["orders"]))
    scene.channel(part(A), part(B, depth=100))
    scene.topic(
        "orders", scene.topics["orders"].channels["billing"], parts=[part(A), part(B, depth=9)]
    )
    assert scene.run(120) == []
    scene.nodes[B] = replace(scene.nodes[B], tombstones=frozenset(["clicks"]))
    assert scene.run(120) == ["no_consumers"]


def test_a_channel_that_is_gone_has_no_problem_at_once_and_leaves_nothing():
    scene = Scene()
    scene.channel(part(A, depth=5, rates=Rates(0, 0, 5, 5)))
    assert scene.run(70) != []
    scene.topic("orders")
    assert scene.run() == []
    assert not scene.problems._rules.cases._cases
    assert scene.problems._rules._channels._windows == {}


# ---- what is not known


def test_the_numbers_of_a_node_that_does_not_answer_prove_nothing():
    """They stand still: in flight and nothing finished, but nobody knows."""
    scene = Scene()
    scene.channel(part(A, depth=9, in_flight_count=3, client_count=1, rates=Rates(5, 5)), part(B))
    scene.run(60)
    scene.channel(part(A, depth=9, in_flight_count=3, client_count=1, rates=Rates(0)), part(B))
    scene.state(A, NodeState.STALE)
    assert scene.run(600) == []
    scene.state(A, NodeState.DOWN)
    assert scene.run(600) == ["node_down"]


def test_time_without_an_answer_does_not_count_as_waiting():
    scene = Scene()
    scene.channel(part(A, in_flight_count=3, client_count=1), part(B))
    scene.run(100)
    scene.state(A, NodeState.STALE)
    scene.run(60)
    scene.state(A, NodeState.UP)
    scene.channel(part(A, in_flight_count=3, client_count=1, known=False), part(B))
    assert scene.run() == []
    scene.channel(part(A, in_flight_count=3, client_count=1), part(B))
    assert scene.run(16) == []
    assert scene.run(20) == ["stuck_in_flight"]


def test_a_reported_problem_stays_while_nobody_knows():
    scene = Scene()
    scene.channel(part(A, depth=5))
    scene.run(70)
    scene.state(A, NodeState.STALE)
    assert scene.run(100) == ["no_consumers"]
    scene.state(A, NodeState.UP)
    scene.channel(part(A))
    assert scene.run(6) == []


def test_a_clock_that_is_set_forward_does_not_count_as_waiting():
    scene = Scene("--problem-no-consumers=5m")
    scene.channel(part(A, depth=5))
    scene.run(10)
    scene.at += 7200
    assert scene.run() == []
    scene.at -= 7200
    assert scene.run(100) == []


# ---- stuck


def test_stuck_in_flight():
    scene = Scene()
    held = {"in_flight_count": 6, "client_count": 1, "depth": 4}
    scene.channel(part(A, **held, rates=Rates(1.5, 0, 0, 0.2)), part(B))
    assert scene.run(120) == []
    assert scene.run() == ["stuck_in_flight"]
    assert scene.only.severity is Severity.CRIT
    assert scene.only.text == (
        "6 messages in flight at 1 consumer, none finished since 22:13 UTC, 0.2/s time out; "
        "4 messages wait behind"
    )
    scene.channel(part(A, **held, rates=Rates(1.5, 0.5)), part(B))
    assert scene.run(6) == []


def test_a_slow_consumer_that_finishes_now_and_then_is_not_stuck():
    scene = Scene()
    held = {"in_flight_count": 1, "client_count": 1, "depth": 4}
    for _ in range(10):
        scene.channel(part(A, **held))
        assert scene.run(100) == []
        scene.channel(part(A, **held, rates=Rates(0, 0.5)))
        assert scene.run() == []


# ---- a consumer that is stuck, while others work

WORKING = {"in_flight_count": 40, "client_count": 3, "rates": Rates(50, 50)}


def test_one_consumer_holds_messages():
    """The broker has seen it: nobody waits for it again, and it is since then."""
    scene = Scene()
    scene.channel(part(A, **WORKING, held_s=119), part(B, **WORKING))
    assert scene.run(600) == []
    scene.channel(part(A, **WORKING, held_s=1380), part(B, **WORKING, held_s=5))
    assert scene.run() == ["consumer_stuck"]
    assert scene.only.severity is Severity.WARN
    assert scene.only.since == scene.at - 1380
    assert scene.only.text == ("a consumer on a:4151 holds messages, none finished since 22:00 UTC")
    scene.probes.holders["orders", "billing", A] = Client(
        remote_address="10.0.0.9:5000", client_id="wor\x1bker\n7", in_flight_count=20
    )
    assert scene.run() == ["consumer_stuck"]
    assert scene.only.text == (
        "10.0.0.9:5000 (worker7) on a:4151 holds 20 messages, none finished since 22:00 UTC"
    )
    scene.channel(part(A, **WORKING, held_s=2), part(B, **WORKING))
    assert scene.run(6) == []


def test_the_worst_of_all_nodes_is_named():
    scene = Scene()
    scene.channel(part(A, **WORKING, held_s=300), part(B, **WORKING, held_s=400))
    assert scene.run() == ["consumer_stuck"]
    assert " on b:4151 " in scene.only.text
    scene.state(B, NodeState.DOWN)
    scene.run()
    assert any(" on a:4151 " in problem.text for problem in scene.problems.found)


def test_nobody_finishing_is_one_problem():
    """It is that of the channel as soon as this is one; then the consumer's goes on since the same time."""
    scene = Scene()
    still = {"in_flight_count": 6, "client_count": 3}
    scene.channel(part(A, **still, held_s=300), part(B))
    assert scene.run() == ["consumer_stuck"]
    since = scene.only.since
    assert scene.run(122) == ["stuck_in_flight"]
    scene.channel(part(A, **WORKING, held_s=420), part(B))
    assert scene.run(8) == ["consumer_stuck"]
    assert scene.only.since == since


def test_a_consumer_of_a_paused_channel_waits():
    scene = Scene()
    scene.channel(part(A, **WORKING, held_s=300), part(B))
    assert scene.run() == ["consumer_stuck"]
    scene.channel(part(A, **WORKING, held_s=300, paused=True), part(B, paused=True))
    assert scene.run(30) == []
    scene.channel(part(A, **WORKING, held_s=340), part(B))
    assert scene.run() == ["consumer_stuck"]


# ---- backlog


def grow(scene, slope=12.0, depth=1500, in_s=100, out_s=88, oldest_s=None):
    scene.channel(
        part(A, depth=depth, client_count=2, in_flight_count=1, rates=Rates(in_s, out_s)),
        slope=slope,
        oldest_s=oldest_s,
    )


def test_a_growing_backlog_is_a_warning_and_critical_when_it_is_old():
    scene = Scene()
    grow(scene)
    assert scene.run(60) == []
    assert scene.run() == ["backlog_grows"]
    assert scene.only.severity is Severity.WARN
    assert scene.only.text == "1,500 messages wait; 12/s more over the last 5 min"
    since = scene.only.since
    grow(scene, oldest_s=601)
    scene.run()
    assert (scene.only.severity, scene.only.since) == (Severity.CRIT, since)
    assert "the oldest for 10 min" in scene.only.text
    assert scene.problems.counts == {Severity.CRIT: 1, Severity.WARN: 0, Severity.INFO: 0}
    grow(scene, oldest_s=3)
    scene.run()
    assert scene.only.severity is Severity.WARN
    grow(scene, slope=-5, in_s=80)
    assert scene.run(6) == []


def test_two_ticks_in_which_more_left_than_came_do_not_end_it():
    scene = Scene()
    for _ in range(12):
        grow(scene)
        scene.run(8)
        grow(scene, in_s=80)
        scene.run(4)
    assert scene.rules() == ["backlog_grows"]


@pytest.mark.parametrize(
    "numbers",
    [
        {"slope": 0.0},
        {"slope": -3},
        {"slope": 0.05},
        {"depth": 1000},
        {"in_s": 88},
        {"slope": None},
    ],
)
def test_no_backlog_grows(numbers):
    scene = Scene()
    grow(scene, **numbers)
    assert scene.run(600) == []


# ---- requeues and timeouts


def flow(scene, out_s, requeue_s=0.0, timeout_s=0.0):
    rates = Rates(out_s, out_s, requeue_s, timeout_s)
    scene.channel(part(A, depth=1, in_flight_count=1, client_count=1, rates=rates))


@pytest.mark.parametrize(
    ("rule", "name"), [("high_requeue", "requeue_s"), ("high_timeouts", "timeout_s")]
)
def test_high_shares(rule, name):
    scene = Scene()
    flow(scene, 70, **{name: 30})
    assert scene.run(58) == []
    assert scene.run(10) == [rule]
    assert scene.only.severity is Severity.WARN
    assert "30 %" in scene.only.text
    flow(scene, 30, **{name: 70})
    scene.run(300)
    assert scene.only.severity is Severity.CRIT
    assert "70 %" in scene.only.text
    assert "in the last 5 min" in scene.only.text
    flow(scene, 100)
    scene.run(250)
    assert scene.rules() == []


@pytest.mark.parametrize(("out_s", "requeue_s"), [(100, 20), (0.2, 0.9), (1000, 200)])
def test_few_requeues_are_no_problem(out_s, requeue_s):
    """Below the share, or too rare to matter."""
    scene = Scene("--problem-stuck=1h")
    flow(scene, out_s, requeue_s)
    assert scene.run(900) == []


def test_a_burst_of_requeues_in_a_busy_channel_is_no_problem():
    scene = Scene()
    flow(scene, 1000)
    scene.run(100)
    flow(scene, 400, requeue_s=600)
    scene.run(4)
    flow(scene, 1000)
    assert scene.run(600) == []
    assert scene.problems._rules._channels._windows == {}


# ---- pauses


def test_paused_on_some_nodes_is_told_at_once():
    scene = Scene()
    scene.channel(part(A, paused=True), part(B))
    assert scene.run() == ["paused_on_some_nodes"]
    assert scene.only.text == "paused on 1 of 2 nodes since 22:13 UTC: a:4151"
    scene.channel(part(A), part(B))
    assert scene.run(6) == []
    scene.channel(part(A, paused=True), part(B))
    scene.state(B, NodeState.STALE)  # it has no say
    assert scene.run(100) == []
    scene = Scene()
    scene.topic("orders", parts=[part(A, paused=True), part(B)])
    assert scene.run() == ["paused_on_some_nodes"]
    assert (scene.only.topic, scene.only.channel) == ("orders", "")


def test_paused_by_its_policy():
    scene = Scene()
    scene.channel(part(A, depth=7, client_count=1, told={"is_failing": True}), part(B, depth=1))
    assert scene.run() == ["paused_by_policy"]
    assert scene.only.text == (
        "its deliveries fail, so its policy pauses it on 1 of 2 nodes since 22:13 UTC: a:4151; "
        "8 messages wait"
    )
    assert scene.run(600) == ["paused_by_policy"]  # its consumers are ready
    scene.channel(part(A, client_count=1), part(B))
    assert scene.run(6) == []


def test_dead_letters_that_are_not_taken():
    scene = Scene()
    consumed = part(B, client_count=1)
    refusing = part(A, client_count=1, deferred_count=1, told={"is_refusing": True})
    scene.channel(refusing, consumed)
    assert scene.run() == ["dead_letters_refused"]
    where = "messages that failed wait on 1 of 2 nodes since 22:13 UTC (a:4151): "
    assert scene.only.text == f"{where}the topic of dead letters takes none"
    scene.probes.letters["orders", "billing", A] = "orders.dead", "it is \x1bfull"
    assert scene.run() == ["dead_letters_refused"]
    assert scene.only.text == f"{where}orders.dead takes none: it is full"
    assert (scene.only.topic, scene.only.channel) == ("orders", "billing")
    scene.channel(part(A, client_count=1), consumed)
    assert scene.run(6) == []


def test_a_topic_that_says_that_it_holds_dead_letters_waits_for_a_person():
    scene = Scene("--problem-no-channel=10s")
    scene.topic("graves", parts=[part(A, depth=9), part(B)])
    assert scene.run(20) == ["topic_without_channel"]
    letters = part(A, depth=9, told={"has_dead_letters": True})
    scene.topic("graves", parts=[letters, part(B)])
    assert scene.run(20) == []


@pytest.mark.parametrize("of_channel", [True, False])
def test_paused_and_filling(of_channel):
    scene = Scene()

    def pause(depth):
        parts = [part(A, paused=True, depth=depth), part(B, paused=True)]
        if of_channel:
            scene.channel(*parts)
        else:
            scene.topic("orders", parts=parts)

    pause(10)
    assert scene.run(1200) == []  # it does not fill
    pause(11)
    assert scene.run() == ["paused_and_filling"]
    pause(400)
    scene.run()
    assert scene.only.text == "paused since 22:13 UTC; 400 messages wait, and more come"
    pause(0)  # emptied
    assert scene.run(6) == []
    pause(5)
    assert scene.run(800) == []
    pause(9)
    assert scene.run(200) == ["paused_and_filling"]


# ---- topics


def test_a_topic_with_messages_and_no_channel():
    scene = Scene()
    scene.topic("orders", parts=[part(A, depth=3), part(B)])
    assert scene.run(60) == []
    assert scene.run() == ["topic_without_channel"]
    assert scene.only.text == (
        "3 messages wait in the topic on a:4151; it has no channel since 22:13 UTC"
    )
    scene.channel(part(A))
    assert scene.run(6) == []
    # A channel on another node takes none of them.
    channel = Channel("orders", "c", Counts(), join_parts([part(A)]), Rates(0))
    scene.topic("orders", channel, parts=[part(A), part(B, depth=3)])
    assert scene.run(70) == ["topic_without_channel"]
    assert "on b:4151; it has no channel there" in scene.only.text


def test_dead_letters_that_arrive():
    scene = Scene()
    scene.topic("orders")
    scene.topic("orders-dead", parts=[part(A, depth=40, message_count=40), part(B)])
    assert scene.run(200) == []  # they are there, none comes
    scene.topic("orders-dead", parts=[part(A, depth=42, message_count=42, rates=Rates(1)), part(B)])
    assert scene.run() == ["dead_letters"]
    assert scene.only.text == "2 dead letters in the last 2 s; 42 since nsqd began"
    scene.topic("orders-dead", parts=[part(A, depth=42, message_count=42), part(B)])
    assert scene.run(250) == ["dead_letters"]
    assert scene.run(100) == []


@pytest.mark.parametrize(
    ("flags", "beside", "rules"),
    [
        ((), "walking", ["dead_letters"]),
        ((), "others", ["topic_without_channel"]),
        (("--problem-dead-letter-suffix=",), "walking", ["topic_without_channel"]),
    ],
)
def test_a_topic_is_one_of_dead_letters_beside_its_own_where_they_have_an_ending(
    flags, beside, rules
):
    scene = Scene(*flags)
    scene.topic(beside)
    scene.topic("walking-dead", parts=[part(A, depth=4, rates=Rates(1))])
    assert scene.run(70) == rules


# ---- consumers that are not ready


def test_consumers_that_are_not_ready():
    scene = Scene()
    scene.channel(part(A, depth=4, client_count=2), part(B, client_count=2))
    assert scene.run(100) == []
    assert set(scene.probes.wanted) == {("orders", "billing", A)}
    scene.probes.counts["orders", "billing", A] = 0
    assert scene.run(60) == []
    assert scene.run() == ["consumers_not_ready"]
    assert "4 consumers connected, none ready (RDY 0)" in scene.only.text
    scene.probes.counts["orders", "billing", A] = 3
    assert scene.run(6) == []


def test_only_suspicious_channels_are_asked_for():
    scene = Scene()
    for share in (
        part(A),
        part(A, client_count=1),
        part(A, depth=4),
        part(A, depth=4, client_count=1, in_flight_count=1),
        part(A, depth=4, client_count=1, rates=Rates(1, 1)),
        part(A, depth=4, client_count=1, paused=True),
    ):
        scene.channel(share)
        scene.run()
    assert scene.probes.wanted == []


# ---- nodes


def test_a_node_that_is_down_is_told_at_once_with_its_cause():
    scene = Scene()
    scene.run(10)
    scene.state(A, NodeState.STALE)
    assert scene.run() == []
    scene.state(A, NodeState.DOWN, "http://a:4151/stats: connection\nrefused")
    assert scene.run() == ["node_down"]
    assert (scene.only.node, scene.only.severity) == (A, Severity.CRIT)
    assert scene.only.since == scene.nodes[A].since
    assert scene.only.text == "no answer since 22:13 UTC: http://a:4151/stats: connection refused"
    scene.state(A, NodeState.UP)
    assert scene.run(6) == []
    scene.state(A, NodeState.DOWN)
    assert scene.run() == ["node_down"]
    del scene.nodes[A]  # it left
    assert scene.run() == []


@pytest.mark.parametrize(
    ("changes", "rule", "severity", "text", "seconds"),
    [
        ({"health": "NOK - no space"}, "node_unhealthy", Severity.CRIT, "NOK - no space", 62),
        ({"version": "1.2.1", "is_out_of_date": True}, "version_behind", Severity.INFO, "1.2.1", 6),
    ],
)
def test_what_a_node_says_of_itself(changes, rule, severity, text, seconds):
    scene = Scene()
    was = scene.nodes[A]
    scene.nodes[A] = replace(was, **changes)
    assert scene.run() == [rule]
    assert scene.only.severity is severity
    assert text in scene.only.text
    scene.nodes[A] = was
    assert scene.run(seconds - 2) == [rule]
    assert scene.run() == []


def test_two_nodes_with_one_address():
    """Each nsqlookupd knows a node once; a reconnect stands beside the old connection for a while."""
    scene = Scene()
    was = scene.nodes[A]
    remotes = ("l:4161/10.0.0.7:50000", "l:4161/10.0.0.8:50000", "m:4161/10.0.0.7:50001")
    scene.nodes[A] = replace(was, remote_addresses=remotes[::2])
    assert scene.run(300) == []
    scene.nodes[A] = replace(was, remote_addresses=remotes)
    assert scene.run(100) == []
    assert scene.run(30) == ["node_twice"]
    assert (scene.only.node, scene.only.severity) == (A, Severity.WARN)
    assert scene.only.text == "2 nsqd say that they are here: 10.0.0.7:50000, 10.0.0.8:50000"
    scene.nodes[A] = was
    assert scene.run(6) == []


@pytest.mark.parametrize(
    ("lost", "severity", "text"),
    [
        (30_000, Severity.CRIT, "up to 30,000 messages in memory are lost"),
        (None, Severity.CRIT, "nothing is known of it"),
        (0, Severity.WARN, "nothing was only in memory"),
    ],
)
def test_a_node_that_was_killed_says_what_it_lost_until_somebody_knows(lost, severity, text):
    scene = Scene()
    was = scene.nodes[A]
    scene.nodes[A] = replace(
        was, unclean_start=UncleanStartFigures(lost), start_time=int(START) - 60
    )
    assert scene.run(900) == ["unclean_start"]
    assert (scene.only.node, scene.only.severity) == (A, severity)
    assert scene.only.since == START - 60
    assert text in scene.only.text
    scene.nodes[A] = was
    assert scene.run(6) == []


def test_a_disk_that_is_nearly_full():
    scene = Scene()
    scene.probes.disks = {A: Disk(9, 100), B: Disk(10, 100)}
    assert scene.run() == ["disk_low"]
    assert (scene.only.node, scene.only.severity) == (A, Severity.CRIT)
    assert scene.only.text == "9 B of 100 B are free, 9 %"


def lookupd(address, *nodes, is_up=True):
    return make_lookupd(
        0, is_up=is_up, address=address, error="" if is_up else "timed out", nodes=frozenset(nodes)
    )


def test_a_lookupd_that_is_down_for_two_ticks():
    scene = Scene()
    scene.lookupds = {"l:4161": lookupd("l:4161", is_up=False)}
    assert scene.run() == []
    assert scene.run() == ["lookupd_down"]
    assert scene.only.node == "l:4161"
    assert "timed out" in scene.only.text
    scene.lookupds = {"l:4161": lookupd("l:4161", A, B)}
    assert scene.run(6) == []


def test_lookupds_that_disagree():
    scene = Scene()
    scene.lookupds = {"l:1": lookupd("l:1", A, B), "m:1": lookupd("m:1", A)}
    assert scene.run(30) == []
    assert scene.run() == ["lookupd_disagree"]
    assert (scene.only.node, scene.only.severity) == (B, Severity.WARN)
    assert scene.only.text == "1 of 2 nsqlookupd do not know it: m:1"
    # One that does not answer neither knows nor denies it.
    scene.lookupds["m:1"] = lookupd("m:1", is_up=False)
    scene.run(20)
    assert sorted(scene.rules()) == ["lookupd_disagree", "lookupd_down"]
    scene.lookupds["m:1"] = lookupd("m:1", A, B)
    assert scene.run(6) == []


def test_a_lookupd_that_begins_anew_is_given_time_to_be_told():
    """nsqd comes back to it within 15 s."""
    scene = Scene()
    scene.lookupds = {"l:1": lookupd("l:1", A, B), "m:1": lookupd("m:1")}
    assert scene.run(16) == []
    scene.lookupds["m:1"] = lookupd("m:1", A, B)
    assert scene.run(100) == []


# ---- all of them


def test_an_idle_cluster_has_no_problem():
    scene = Scene(nodes=(A, B, C))
    scene.channel(part(A, client_count=1), part(B, client_count=1), part(C))
    scene.topic("empty")
    scene.topics["old"] = make_topic("old", nodes=())
    scene.lookupds = {"l:1": lookupd("l:1", A, B, C)}
    assert scene.run(1200) == []
    assert not scene.problems._rules.cases._cases


BUSY = {"depth": 900, "in_flight_count": 40, "client_count": 4, "rates": Rates(500, 501, 5, 1)}
FAULTY = {"depth": 5000, "in_flight_count": 3, "rates": Rates(9, 0, 9, 9)}


@pytest.mark.parametrize(
    ("topic", "channel", "counts"),
    [
        ("orders", "billing", BUSY),
        ("orders", "tail#ephemeral", FAULTY),
        ("orders#ephemeral", "billing", FAULTY),
    ],
)
def test_what_is_busy_or_ephemeral_has_no_problem(topic, channel, counts):
    scene = Scene()
    slope = 0.01 if counts is BUSY else 99
    scene.channel(
        part(A, **counts), part(B, **counts), topic=topic, name=channel, slope=slope, oldest_s=2
    )
    assert scene.run(1200) == []


def test_what_is_paused_everywhere_has_no_other_problem():
    scene = Scene()
    parts = [part(key, **FAULTY | {"paused": True}) for key in (A, B)]
    scene.channel(*parts, slope=9, oldest_s=9999)
    assert scene.run(800) == []


def test_the_list_is_bounded_and_the_counts_are_whole():
    scene = Scene("--problem-no-consumers=0s")
    channels = [
        Channel("t", f"c{i}", Counts(depth=1), join_parts([part(A, depth=1)]), Rates(0.0))
        for i in range(1500)
    ]
    scene.topic("t", *channels)
    steps = scene.problems._judge(make_cluster(scene.topics.values(), scene.nodes.values()))
    assert sum(1 for _ in steps) > 1500  # each is a chance for others to run
    assert len(scene.problems.found) == 1000
    assert scene.problems.total == 1500


def test_a_mute_lasts_while_the_problem_comes_and_goes_and_ends():
    scene = Scene("--problem-no-consumers=0s")
    scene.channel(part(A, depth=1))
    scene.run()
    problem = scene.only
    assert problem.muted_until == 0
    silence = Silence(Scope.PROBLEM, problem.id, time.time() + 3600)
    assert scene.problems.silence(silence)
    assert (scene.only.muted_until, scene.only.muted_by) == (silence.until, silence)
    scene.channel(part(A))
    assert scene.run(6) == []
    scene.channel(part(A, depth=1))
    scene.run()
    assert scene.only.muted_until == silence.until
    assert scene.problems.end_silence(Scope.PROBLEM, problem.id)
    assert scene.only.muted_until == 0
    scene.run()
    assert scene.only.muted_until == 0
    assert not scene.problems.end_silence(Scope.PROBLEM, problem.id)
    scene.problems.silence(Silence(Scope.PROBLEM, problem.id, time.time() - 1))
    scene.run()
    assert scene.only.muted_until == 0
    assert list(scene.problems.silences) == []


def test_the_silence_that_lasts_longest_mutes_what_it_is_for():
    scene = Scene("--problem-no-consumers=0s", "--problem-no-channel=0s")
    now = time.time()
    scene.channel(part(A, depth=1))
    scene.state(B, NodeState.DOWN)
    assert sorted(scene.run()) == ["no_consumers", "node_down"]

    def muted():
        return {one.rule: one.muted_by.scope for one in scene.problems.found if one.muted_by}

    assert muted() == {}
    for scope, target in ((Scope.NODE, A), (Scope.TOPIC, "clicks"), (Scope.NODE, "")):
        scene.problems.silence(Silence(scope, target, now + 5000))
    assert muted() == {}
    scene.problems.silence(Silence(Scope.NODE, B, now + 1000))
    scene.problems.silence(Silence(Scope.TOPIC, "orders", now + 3000))
    assert muted() == {"node_down": Scope.NODE, "no_consumers": Scope.TOPIC}
    scene.problems.silence(Silence(Scope.EVERYTHING, "", now + 2000))
    assert muted() == {"node_down": Scope.EVERYTHING, "no_consumers": Scope.TOPIC}
    scene.run()
    assert muted() == {"node_down": Scope.EVERYTHING, "no_consumers": Scope.TOPIC}
    scene.problems.end_silence(Scope.EVERYTHING, "")
    scene.problems.end_silence(Scope.TOPIC, "orders")
    assert muted() == {"node_down": Scope.NODE}


PROBLEM_FILE = """
severity = { version_behind = "off", node_down = "warn" }

[[topic]]
name = "orders*"
no_consumers = "10s"
severity = { no_consumers = "warn" }

[[topic]]
name = "orders"
channel = "[ab]*"
backlog_depth = 100_000

[[topic]]
channel = "archive"
no_consumers = "1h"
severity = { no_consumers = "off", backlog_grows = "crit" }
"""


def scene_with(path, text, *flags):
    path.write_text(text)
    return Scene(f"--problem-file={path}", *flags)


def test_a_file_has_other_thresholds_and_severities_for_some_topics(tmp_path):
    scene = scene_with(tmp_path / "problems.toml", PROBLEM_FILE, "--problem-backlog-time=0s")
    table = scene.problems._rules.thresholds
    assert table.of("clicks").no_consumers == table.of("").no_consumers == 60
    assert table.of("orders2", "x").no_consumers == table.of("orders").no_consumers == 10
    depths = [table.of("orders", name).backlog_depth for name in ("billing", "cache", "archive")]
    assert depths == [100_000, 1000, 100_000]
    assert table.of("clicks", "archive").no_consumers == 3600
    assert table.of("orders", "archive").severity == {
        "version_behind": "off",
        "node_down": "warn",
        "no_consumers": "off",
        "backlog_grows": "crit",
    }
    scene.nodes[A] = replace(scene.nodes[A], is_out_of_date=True)
    scene.state(B, NodeState.DOWN)
    scene.channel(part(A, depth=1))
    assert scene.run(9) == ["node_down"]
    assert scene.only.severity is Severity.WARN
    assert scene.run(4) == ["node_down", "no_consumers"]
    assert scene.problems.found[1].severity is Severity.WARN
    scene.channel(part(A, depth=5), name="archive")
    assert scene.run(7200) == ["node_down"]


def test_the_file_is_read_again(tmp_path):
    path = tmp_path / "problems.toml"
    scene = scene_with(path, "", "--problem-no-consumers=0s")
    scene.channel(part(A, depth=1))
    assert scene.run() == ["no_consumers"]
    path.write_text('severity = { no_consumers = "info" }')
    scene.problems.reload()
    scene.run()
    assert scene.only.severity is Severity.INFO
    path.write_text('severity = { no_consumers = "none" }')
    with pytest.raises(OptionsError):
        scene.problems.reload()
    scene.run()
    assert scene.only.severity is Severity.INFO
    path.write_text('[[topic]]\nname = "orders"\nseverity = { no_consumers = "off" }')
    scene.problems.reload()
    assert scene.run(10) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x", "Expected '=' after a key"),
        ("x = 1", "unknown field `x`"),
        ('severity = { no_consumer = "off" }', "there is no rule no_consumer"),
        ('severity = { no_consumers = "bad" }', "Invalid enum value 'bad'"),
        ("severity = 3", "Expected `object`, got `int`"),
        ("[[topic]]\nname = 3", "topic 1: name and channel have to be patterns"),
        ("[[topic]]\n[[topic]]\nno_consumers = 3", 'topic 2: a duration is a text such as "10m"'),
        ('[[topic]]\nno_consumers = "soon"', "topic 1: a duration is a text"),
        ('[[topic]]\nno_consumers = "-1s"', "topic 1: a duration is a text"),
        ("[[topic]]\nbacklog_depth = -1", "topic 1: Expected `float` >= 0"),
        ("[[topic]]\nbacklog_depth = nan", "topic 1: Expected `float` >= 0"),
        ("[[topic]]\nwindow = 3", "topic 1: Object contains unknown field `window`"),
        ('[[topic]]\nseverity = { x = "off" }', "topic 1: severity: there is no rule x"),
        ("[topic]", "Expected `array`, got `object`"),
        ("a = " + "[" * 100_000, ""),
    ],
)
def test_a_faulty_file_is_named(tmp_path, text, complaint):
    path = tmp_path / "problems.toml"
    with pytest.raises(OptionsError) as told:
        scene_with(path, text)
    assert str(told.value).startswith(f"--problem-file {path}: ")
    assert complaint in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_is_not_there_or_is_huge(tmp_path):
    with pytest.raises(OptionsError, match="no such file or directory"):
        Scene(f"--problem-file={tmp_path / 'none'}")
    with pytest.raises(OptionsError, match="the file is too large"):
        scene_with(tmp_path / "problems.toml", "#" * (1 << 20) + "#")


def test_no_more_than_a_thousand_silences_are_kept():
    scene = Scene()
    until = time.time() + 1000
    made = [Silence(Scope.NODE, f"node{number}:4151", until) for number in range(SILENCES_MAX + 1)]
    assert [scene.problems.silence(one) for one in made] == [True] * SILENCES_MAX + [False]
    assert scene.problems.silence(made[0])  # a change of one of them
    assert scene.problems.end_silence(Scope.NODE, made[0].target)
    assert scene.problems.silence(made[-1])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 3),
            st.integers(0, 2),
            st.booleans(),
            st.sampled_from(NodeState),
            st.sampled_from([None, Rates(0.0), Rates(5, 0, 0, 0), Rates(0, 5, 5, 5)]),
            st.booleans(),
        ),
        max_size=120,
    )
)
def test_whatever_happens_the_books_are_right(ticks):
    scene = Scene(
        "--problem-no-consumers=4s",
        "--problem-stuck=4s",
        "--problem-window=20s",
        "--problem-paused=4s",
    )
    for depth, in_flight, clients, paused, state, rates, is_there in ticks:
        counts = {"depth": depth, "in_flight_count": in_flight, "client_count": clients}
        scene.state(B, state)
        if is_there:
            scene.channel(
                part(A, **counts, paused=paused, rates=rates),
                part(B, **counts, known=rates is not None),
            )
        else:
            scene.topics.clear()
        scene.run()
        found = scene.problems.found
        ranks = [(list(Severity).index(one.severity), one.since) for one in found]
        assert ranks == sorted(ranks)
        assert scene.problems.total == len(found) == len({one.id for one in found})
        assert is_there or all(one.rule == "node_down" for one in found)
        assert all("\n" not in one.text and one.since <= scene.at for one in found)
    scene.topics.clear()
    scene.nodes.clear()
    assert scene.run() == []
    assert not scene.problems._rules.cases._cases


def test_a_window_has_to_last():
    with pytest.raises(OptionsError, match="--problem-window must be above 0s"):
        Scene("--problem-window=0s")


@pytest.mark.parametrize("flag", ["--problem-rate=-1", "--problem-stuck=-1s", "--problem-rate=nan"])
def test_no_threshold_is_below_zero(flag):
    with pytest.raises(OptionsError, match=f"^{flag.partition('=')[0]} must be at least 0$"):
        Scene(flag)


# ---- what a pause, a drain and a restart of nsqadmin do to problems


def test_a_pause_hides_a_problem_and_keeps_since_when_it_is_one():
    scene = Scene("--problem-no-consumers=0s")
    scene.channel(part(A, depth=4))
    assert scene.run() == ["no_consumers"]
    since = scene.only.since
    scene.channel(part(A, depth=4, paused=True))
    assert scene.run(100) == []
    scene.channel(part(A, depth=4))
    assert scene.run() == ["no_consumers"]
    assert scene.only.since == since
    scene.channel(part(A, depth=4, paused=True))
    scene.run()
    scene.channel(part(A, depth=4, client_count=1))  # meanwhile somebody came
    assert scene.run() == []
    scene.channel(part(A, depth=4))
    assert scene.run() == ["no_consumers"]
    assert scene.only.since > since


def test_a_node_is_down_for_a_while_before_that_is_critical():
    scene = Scene("--problem-node-down=20s")
    scene.state(A, NodeState.DOWN)
    scene.run()
    assert scene.only.severity is Severity.WARN
    scene.run(20)
    assert scene.only.severity is Severity.CRIT


def test_a_node_that_stopped_after_a_drain_has_time_to_come_back():
    scene = Scene()
    scene.state(A, NodeState.DOWN)
    scene.nodes[A] = replace(scene.nodes[A], drain=DrainFigures(1), planned_until=scene.at + 30)
    assert scene.run(28) == []
    assert scene.run(4) == ["node_down"]
    assert scene.only.text.startswith("it stopped after a drain at ")


@pytest.mark.parametrize(("start_time", "since"), [(-(1 << 53), 0.0), (1 << 53, START + STEP_S)])
def test_a_node_that_lies_about_its_time_was_not_started_before_time(start_time, since):
    scene = Scene()
    loss = UncleanStartFigures(7)
    scene.nodes[A] = replace(scene.nodes[A], start_time=start_time, unclean_start=loss)
    assert scene.run() == ["unclean_start"]
    assert scene.only.since == since
    event = make_event("raised", scene.only)
    (alert,) = json.loads(alertmanager_form([event]))["alerts"]
    assert alert["startsAt"] == ("1970-01-01T00:00:00Z" if not since else "2023-11-14T22:13:22Z")


def test_a_drain_that_nobody_empties_is_a_problem():
    scene = Scene()
    scene.nodes[A] = replace(scene.nodes[A], drain=DrainFigures(1, messages=1200))
    assert scene.run(10) == []
    scene.nodes[A] = replace(scene.nodes[A], drain=DrainFigures(1, None, 1200, 300))
    assert scene.run(4) == ["drain_held"]
    held = "nobody gets 300 of 1,200 messages: paused, or without consumers"
    assert (scene.only.severity, scene.only.node) == (Severity.WARN, A)
    assert scene.only.text == f"it drains without a deadline, and {held}"
    scene.nodes[A] = replace(scene.nodes[A], drain=DrainFigures(1, int(START), 1200, 300))
    scene.run()
    assert scene.only.text == f"it drains until 22:13 UTC, and {held}"
    scene.nodes[A] = replace(scene.nodes[A], drain=DrainFigures(1, 1 << 53, 1 << 53, -1))
    scene.run()  # whatever a node says
    assert "it drains until " in scene.only.text
    scene.nodes[A] = replace(scene.nodes[A], drain=None)
    assert scene.run(10) == []


def test_problems_of_the_previous_nsqadmin_are_believed_until_the_rule_knows():
    before = Scene("--problem-no-consumers=0s")
    before.channel(part(A, depth=4))
    before.nodes[B] = replace(before.nodes[B], health="NOK - disk")
    assert before.run() == ["no_consumers", "node_unhealthy"]
    kept = list(before.problems.kept())

    after = Scene("--problem-no-consumers=0s")
    after.problems.restore(kept)
    assert after.problems.found == before.problems.found
    assert after.problems.counts == before.problems.counts
    after.channel(part(A, depth=4))
    assert after.run(70) == ["no_consumers"]
    assert after.only.since == kept[0].since
    after.channel(part(A, client_count=1))
    assert after.run(10) == []

    last = Scene("--problem-no-consumers=0s")
    last.problems.restore(kept)
    last.state(A, NodeState.DOWN)
    last.nodes[A] = replace(last.nodes[A], start_time=0)  # it has not answered this nsqadmin yet
    assert last.run(600) == ["node_down", "no_consumers"]
    del last.nodes[A]
    assert last.run(10) == []


def test_a_rule_that_looks_back_believes_the_previous_nsqadmin_for_as_long():
    scene = Scene("--problem-window=2m")
    scene.problems.restore(
        [KeptCase("high_requeue", "orders", "billing", "", Severity.WARN, START, "half of them", 0)]
    )
    scene.channel(part(A, client_count=1))
    assert scene.run(110) == ["high_requeue"]
    assert (scene.only.text, scene.only.since) == ("half of them", START)
    assert scene.run(20) == []


# ---- one cause, one problem, and none that comes and goes


def test_without_consumers_a_backlog_is_no_problem_of_its_own():
    scene = Scene("--problem-backlog-time=0s", "--problem-no-consumers=10s")
    counts = {"depth": 5000, "rates": Rates(9.0)}
    scene.channel(part(A, client_count=1, **counts), slope=9)
    assert scene.run(4) == ["backlog_grows"]
    since = scene.only.since
    scene.channel(part(A, **counts), slope=9)
    assert scene.run(20) == ["no_consumers"]
    scene.channel(part(A, client_count=1, **counts), slope=9)
    assert scene.run(10) == ["backlog_grows"]
    assert scene.only.since == since


def test_a_node_that_is_well_now_and_then_is_one_problem():
    scene = Scene()
    since = None
    for _ in range(10):
        scene.nodes[A] = replace(scene.nodes[A], health="NOK - no space left on device")
        assert scene.run() == ["node_unhealthy"]
        since = since or scene.only.since
        assert scene.only.since == since
        scene.nodes[A] = replace(scene.nodes[A], health="OK")
        assert scene.run(30) == ["node_unhealthy"]
    assert scene.run(40) == []


def test_when_no_nsqlookupd_answers_that_is_critical():
    scene = Scene()
    down = {"is_up": False, "since": START, "error": "connection refused"}
    scene.lookupds = {n: make_lookupd(n) for n in range(2)}
    scene.lookupds[0] = replace(scene.lookupds[0], **down)
    scene.run(4)
    assert scene.only.severity is Severity.WARN
    scene.lookupds[1] = replace(scene.lookupds[1], **down)
    scene.run(4)
    assert [one.severity for one in scene.problems.found] == [Severity.CRIT] * 2
