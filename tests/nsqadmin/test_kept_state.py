"""A restart of nsqadmin resolves nothing: nodes and problems, with their times, are those of the one before."""

import json
import re

import msgspec
import pytest

from nsqfast.nsqadmin.cluster.answers import NodeIdentity
from nsqfast.nsqadmin.cluster.members import NodeWatch
from support.access import run_admin
from support.admin import LiveCluster, shown, start_nsqadmin, text_of, told
from support.admin_actions import start_again
from support.lookup import producers
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import get, request
from support.wire import Client

QUICK = "--poll-interval=200ms"
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FOREIGN = (
    b'{"rule":"no_consumers","topic":"orders","channel":"c","node":"",'
    b'"severity":"crit","since":1.0,"text":"x","least":0.0}'
)
TICKS = 10  # more than it takes to find that something is over

pytestmark = pytest.mark.slow


def run_beside(cluster, *flags):
    """In this process: where it is a restart, the one before was another."""
    return run_admin(
        *(f"--lookupd-http-address={text_of(x.http)}" for x in cluster.lookupds), *flags
    )


def ask(admin):
    answer = get(admin.http, "/ui/problems")
    assert answer.status == 200, answer
    return answer.json()


def problems(admin):
    """By id: since when and how bad."""
    return {one["id"]: (one["since"], one["severity"]) for one in ask(admin)["problems"]}


def rules(admin):
    return sorted(one["rule"] for one in ask(admin)["problems"])


def wait_for(admin, *expected):
    wait_until(lambda: rules(admin) == sorted(expected), f"problems {expected}")


def wait_for_ticks(admin, count=TICKS):
    goal = ask(admin)["tick"] + count
    wait_until(lambda: ask(admin)["tick"] >= goal, f"tick {goal}")


def forget(admin, node, headers=JSON, action="forget"):
    body = f"node={node}".encode() if headers is FORM else json.dumps({"node": node}).encode()
    return request(admin.http, "POST", f"/ui/nodes/{action}", body, headers)


def drain(admin, node, given, action="drain"):
    body = json.dumps({"node": node, **given}).encode()
    return request(admin.http, "POST", f"/ui/nodes/{action}", body, JSON)


def wait_for_state(path, *rules):
    """Until the file has these problems."""

    def is_written():
        try:
            found = json.loads(path.read_bytes())["problems"]
        except FileNotFoundError:
            return False
        return sorted(one["rule"] for one in found) == sorted(rules)

    wait_until(is_written, f"{rules} in {path}")


@pytest.fixture
def cluster(tmp_path):
    with LiveCluster(tmp_path, ("nsqfast", "nsqfast"), ("nsqfast",)) as made:
        yield made


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """A cluster for those that only look at it."""
    with LiveCluster(
        tmp_path_factory.mktemp("unchanged"), ("nsqfast", "nsqfast"), ("nsqfast",)
    ) as made:
        yield made


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_dead_node_and_its_problems_outlive_a_restart_until_it_is_forgotten(
    cluster, tmp_path, end
):
    history = tmp_path / "history"
    flags = (QUICK, "--problem-no-consumers=0s", f"--history-file={history}")
    cluster.make("orders", "billing", on=[0])
    cluster.make("events", "archive", on=[1])
    victim = text_of(cluster.nsqds[1].http)
    with cluster.admin("nsqfast", *flags) as admin:
        for number, topic in enumerate(("orders", "events")):
            cluster.publish(topic, 5, on=number)
        wait_for(admin, "no_consumers", "no_consumers")
        assert forget(admin, victim).status == 409  # it is alive
        cluster.nsqds[1].kill()
        wait_for(admin, "no_consumers", "no_consumers", "node_down")
        before = problems(admin)
        wait_for_state(tmp_path / "history.state", "no_consumers", "no_consumers", "node_down")
        getattr(admin, end)()
    with run_beside(cluster, *flags) as admin:
        # At once, and after everything was looked at; what only the dead node had is not known to be over.
        assert problems(admin) == before
        wait_for_ticks(admin)
        assert problems(admin) == before
        page = get(admin.http, f"/nodes/{victim}").text
        assert "Forget this node" in page
        answer = forget(admin, victim, FORM)
        assert (answer.status, answer.headers["Location"]) == (303, "/nodes")
        wait_for(admin, "no_consumers")
        assert get(admin.http, f"/nodes/{victim}").status == 404
        assert forget(admin, victim).status == 409
        wait_for_state(tmp_path / "history.state", "no_consumers")
    with run_beside(cluster, *flags) as admin:
        wait_for_ticks(admin)
        assert rules(admin) == ["no_consumers"]
        with Client(cluster.nsqds[0].tcp) as consumer:
            consumer.sub("orders", "billing", 5)
            for _ in range(5):
                consumer.fin(consumer.read_message())
            wait_for(admin)


def test_a_node_that_died_while_nsqadmin_was_away(cluster, tmp_path):
    """And one that is back."""
    flags = (QUICK, f"--history-file={tmp_path / 'history'}")
    first, second = (text_of(one.http) for one in cluster.nsqds)
    with cluster.admin("nsqfast", *flags) as admin:
        wait_for_ticks(admin, 3)
        cluster.nsqds[1].kill()
        wait_for(admin, "node_down")
    lookups = [f"--lookupd-tcp-address={text_of(one.tcp)}" for one in cluster.lookupds]
    where = [f"--http-address={second}", f"--tcp-address={text_of(cluster.nsqds[1].tcp)}"]
    with start_nsqd("nsqfast", tmp_path / "nsqd-1", *lookups, *where) as server:
        cluster.nsqds[0].kill()
        wait_until(
            lambda: len(get(cluster.lookupds[0].http, "/nodes").json()["producers"]) == 1,
            "one is registered",
        )
        with run_beside(cluster, *flags) as admin:
            expected = [("node_down", first), ("unclean_start", second)]
            wait_until(
                lambda: (
                    sorted((one["rule"], one["node"]) for one in ask(admin)["problems"]) == expected
                ),
                "only the first is dead",
            )
        server.stop()


def test_without_nsqlookupd_a_node_keeps_its_name_while_it_is_down(tmp_path):
    flags = (QUICK, f"--history-file={tmp_path / 'history'}")
    (tmp_path / "data").mkdir()
    with start_nsqd("nsqfast", tmp_path / "data", "--broadcast-address=localhost") as nsqd:
        name = f"localhost:{nsqd.http[1]}"
        with start_nsqadmin("nsqfast", *flags, nsqds=[nsqd]) as admin:
            wait_for_ticks(admin, 3)
            nsqd.kill()
            wait_for(admin, "node_down")
            before = problems(admin)
            assert list(before) == [f"node_down///{name.replace(':', '%3A')}"]
        with start_nsqadmin("nsqfast", *flags, nsqds=[nsqd]) as admin:
            wait_for_ticks(admin)
            assert problems(admin) == before
            answer = forget(admin, name)
            told_why = {"message": "Not forgotten: --nsqd-http-address names it."}
            assert (answer.status, answer.json()) == (409, told_why)


def test_what_a_killed_node_lost_is_a_problem_until_somebody_knows(cluster, tmp_path):
    flags = (QUICK, f"--history-file={tmp_path / 'history'}")
    cluster.make("orders", "billing", on=[1])
    cluster.publish("orders", 5, on=1)
    run_file = tmp_path / "nsqd-1" / "nsqfast.running"
    wait_until(lambda: b'"messages":5}' in run_file.read_bytes(), "they are counted")
    with cluster.admin("nsqfast", *flags) as admin:
        wait_for_ticks(admin, 3)
        cluster.nsqds[1].kill()
        wait_for(admin, "node_down")
        start_again(cluster, 1)
        wait_for(admin, "unclean_start")
        (found,) = ask(admin)["problems"]
        node = text_of(cluster.nsqds[1].http)
        assert (found["node"], found["severity"]) == (node, "crit")
        assert found["text"] == "restarted uncleanly: up to 5 messages in memory are lost"
    with run_beside(cluster, *flags) as admin:
        assert rules(admin) == ["unclean_start"]
        wait_for_ticks(admin)
        page = get(admin.http, f"/nodes/{node}").text
        assert "up to 5 messages in memory are lost" in page
        assert "The unclean start is known" in page
        answer = forget(admin, "127.0.0.1:1", action="acknowledge")
        told_why = {"message": "Not acknowledged: the cluster has no node 127.0.0.1:1."}
        assert (answer.status, answer.json()) == (409, told_why)
        answer = forget(admin, node, FORM, "acknowledge")
        assert (answer.status, answer.headers["Location"]) == (303, f"/nodes/{node}")
        wait_for(admin)


def test_a_node_that_stops_after_a_drain_is_no_problem_for_a_while(tmp_path):
    with LiveCluster(tmp_path, ("nsqfast",), ("nsqfast",), "--http-drain") as cluster:
        (nsqd,) = cluster.nsqds
        node = text_of(nsqd.http)
        cluster.make("orders", "billing")
        cluster.publish("orders", 1)
        with (
            run_beside(cluster, QUICK, "--planned-stop=3s") as admin,
            Client(nsqd.tcp) as consumer,
        ):
            consumer.sub("orders", "billing", 1)
            message = consumer.read_message()

            def state():
                found = get(admin.http, f"/ui/live?view=/nodes/{node}").json()
                return shown(found["states"]["node"]["word"]) if "states" in found else "unknown"

            wait_until(lambda: state() == "up", "it is known")
            answer = drain(admin, node, {"deadline": "1h"})
            assert (answer.status, answer.json()["message"]) == (
                409,
                f"Not begun: confirm has to be {node}.",
            )
            for deadline, text in (("soon", "the deadline has to be a duration, for example 30m"),):
                answer = drain(admin, node, {"deadline": deadline, "confirm": node})
                assert (answer.status, answer.json()["message"]) == (409, f"Not begun: {text}.")
            assert drain(admin, node, {"confirm": node}).json() == {"node": node}
            wait_until(lambda: state() == "draining: 1 left", "it drains")
            assert drain(admin, node, {}, "drain/cancel").status == 200
            wait_until(lambda: state() == "up", "it takes messages again")
            assert drain(admin, node, {"deadline": "1h", "confirm": node}).status == 200
            wait_until(
                lambda: re.fullmatch(r"draining: 1 left, until [\d:]+", state()), "it drains"
            )
            assert producers(cluster.lookupds[0].http, "orders") == []
            consumer.fin(message)
            wait_until(lambda: state() == "stopped as planned", "it has stopped")
            assert rules(admin) == []
            assert "has been down" not in get(admin.http, "/nodes").text
            wait_for(admin, "node_down")
            (found,) = ask(admin)["problems"]
            assert re.fullmatch(
                r"it stopped after a drain at \d\d:\d\d UTC and did not come back", found["text"]
            )
            assert forget(admin, node).json() == {"node": node}
            wait_for(admin)


def test_a_drain_has_to_be_allowed_by_the_node_and_says_what_holds_it(tmp_path):
    with LiveCluster(tmp_path, ("nsqfast",), ("nsqfast",)) as cluster:
        (nsqd,) = cluster.nsqds
        node = text_of(nsqd.http)
        with run_beside(cluster, QUICK) as admin:
            wait_until(lambda: node in get(admin.http, "/nodes").text, "it is known")
            answer = drain(admin, node, {"confirm": node})
            text = "it allows no drain here; it has to be started with --http-drain"
            assert (answer.status, answer.json()["message"]) == (409, f"Not begun: {text}.")
            other = "127.0.0.1:1"
            answer = drain(admin, other, {"confirm": other})
            assert answer.json()["message"] == f"Not begun: the cluster has no node {other}."
    with LiveCluster(tmp_path / "other", ("nsqfast",), ("nsqfast",), "--http-drain") as cluster:
        (nsqd,) = cluster.nsqds
        node = text_of(nsqd.http)
        cluster.make("orders", "billing")
        cluster.publish("orders", 3)
        with run_beside(cluster, QUICK) as admin, Client(nsqd.tcp) as consumer:
            consumer.sub("orders", "billing", 0)
            told(nsqd, "/channel/pause?topic=orders&channel=billing")
            wait_until(lambda: node in get(admin.http, "/nodes").text, "it is known")
            answer = request(admin.http, "POST", "/ui/nodes/drain", drain_form(node), FORM)
            assert (answer.status, answer.headers["Location"]) == (303, f"/nodes/{node}")
            wait_for(admin, "drain_held")
            (found,) = ask(admin)["problems"]
            assert "nobody gets 3 of 3 messages: paused, or without consumers" in found["text"]
            told(nsqd, "/channel/unpause?topic=orders&channel=billing")
            wait_for(admin)


def drain_form(node):
    return f"node={node}&confirm={node}&deadline=1h".encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the state in {path} are ignored: "),
        (b'{"nsqadmin_state": ["127.0.0.1:1"], "nodes": [', "the state in {path} are ignored: "),
        (b'{"nsqadmin_state": 1}', "the state in {path} are ignored: "),
        (b"[" * 100_000, "the state in {path} are ignored: "),
        (
            b'{"nsqadmin_state":["10.0.0.1:4161"],"nodes":[],"problems":[%b]}' % FOREIGN,
            "the state beside --history-file is another cluster's",
        ),
    ],
    ids=["empty", "half", "a number", "deep", "another cluster"],
)
def test_a_state_that_is_none_of_this_cluster_is_one_warning(unchanged, tmp_path, body, text):
    path = tmp_path / "history.state"
    path.write_bytes(body)
    with unchanged.admin("nsqfast", QUICK, f"--history-file={tmp_path / 'history'}") as admin:
        wait_for_ticks(admin)
        assert rules(admin) == []
        admin.stop()
        warnings = [line for line in admin.lines if "WARNING" in line and "state" in line]
        assert len(warnings) == 1
        assert text.format(path=path) in warnings[0]
    assert len(json.loads(path.read_bytes())["nodes"]) == 2


def test_an_error_that_is_no_text_is_kept_as_one():
    node = NodeWatch(NodeIdentity("host", "host", 4150, 4151), None, None, None, 1, 0.0)
    node.question.error = "no answer: \udcff"
    assert b"no answer: ?" in msgspec.json.encode(node.kept(""))
