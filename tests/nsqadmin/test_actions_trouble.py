"""Actions while nodes are down or do not answer: what is done elsewhere, what is said, and trying again."""

import pytest

from nsqfast.nsqadmin.actions.jobs import NODES_AT_ONCE
from support.admin import LiveCluster, text_of
from support.admin_actions import Acting, paused, publish, results, start_again, topics_of
from support.lookup import topics

pytestmark = [pytest.mark.go, pytest.mark.slow, pytest.mark.soak]

OFTEN = "--poll-interval=300ms"  # so that nobody waits for it
SOON = ("--http-client-request-timeout=1s", "--http-client-connect-timeout=1s")


@pytest.fixture
def cluster(tmp_path):
    with LiveCluster(tmp_path) as made:
        made.make("orders", "billing")
        publish(made, "orders", 5, 5, 5, channels=["billing"])
        yield made


@pytest.fixture
def admin(cluster):
    with cluster.admin("nsqfast", *SOON, OFTEN) as server:
        acting = Acting(server)
        acting.wait_for_nodes("orders", 3)
        yield acting


def node_of(cluster, number):
    return text_of(cluster.nsqds[number].http)


@pytest.mark.parametrize("number", [1, 2], ids=["ours", "go"])
def test_delete_with_a_node_down_is_tried_again_when_it_is_back(cluster, admin, number):
    down = cluster.nsqds[number]
    down.stop()
    effect = admin.effect("delete", "orders")
    by_node = {node["node"]: node for node in effect["nodes"]}
    assert len(by_node) == 3
    assert by_node[node_of(cluster, number)]["messages"] is None
    assert by_node[node_of(cluster, number)]["error"] == "connection refused"
    status, job = admin.act("delete", "orders", confirm="orders")
    assert (status, job["outcome"], job["can_retry"]) == (200, "partial", True)
    (item,) = job["items"]
    nsqds = [result for result in item["results"] if result["kind"] == "nsqd"]
    assert sorted(result["ok"] for result in nsqds) == [False, True, True]
    (failed,) = [result for result in nsqds if not result["ok"]]
    assert (failed["node"], failed["text"]) == (text_of(down.http), "connection refused")
    start_again(cluster, number)
    assert "orders" in topics_of(cluster)[number]
    status, again = admin.ask("POST", f"/ui/actions/{job['id']}/retry", {})
    assert (status, again["outcome"], again["can_retry"]) == (200, "ok", False)
    # Those that had done it are left alone; nsqlookupd hears it once more.
    told = {text_of(down.http), *(text_of(one.http) for one in cluster.lookupds)}
    assert set(results(again)) == told
    assert all("orders" not in names for names in topics_of(cluster))
    assert not any("orders" in topics(one.http) for one in cluster.lookupds)


def test_both_nsqlookupd_down_leaves_pause_possible(cluster, admin):
    for lookupd in cluster.lookupds:
        lookupd.kill()
    effect = admin.effect("pause", "orders")
    assert len(effect["nodes"]) == 3
    assert effect["warnings"][0].startswith("Asked are only nodes that were known before")
    assert admin.act("pause", "orders")[0] == 200
    assert paused(cluster, "orders") == [True, True, True]


def test_a_set_does_not_wait_for_a_frozen_node_each_time_and_can_be_stopped(cluster, admin):
    names = [f"set-{number:02}" for number in range(40)]
    for name in names:
        cluster.make(name, "c")
    admin.wait_for_nodes(names[-1], 3)
    view = {"view": "/topics?q=set-", "table": "topics"}
    with cluster.nsqds[0].frozen():
        errors = {each["node"]: each["error"] for each in admin.effect("empty", names[0])["nodes"]}
        late = errors.pop(node_of(cluster, 0))
        assert late in ("no answer within 2 s", "no answer in time")
        assert set(errors.values()) == {""}
        effect = admin.effect("pause", **view)
        assert len(effect["items"]) == 40
        status, job = admin.act("pause", hash=effect["hash"], **view)
        assert (status, job["is_running"]) == (202, True)
        assert admin.ask("POST", f"/ui/actions/{job['id']}/retry", {})[0] == 409
        assert admin.ask("POST", f"/ui/actions/{job['id']}/stop", {})[0] == 200
        stopped = admin.end_of(job)
        assert stopped["is_stopped"]
        assert 0 < stopped["done"] < 40
        status, job = admin.act("pause", hash=effect["hash"], **view)
        ended = admin.end_of(job)
        assert (ended["done"], ended["outcome"]) == (40, "partial")
        texts = [result["text"] for item in ended["items"] for result in item["results"]]
        assert len(texts) == 40  # of the frozen one alone
        assert set(texts) == {"no answer in time", "not asked again: no answer in time"}
        assert texts.count("no answer in time") <= NODES_AT_ONCE
        status, again = admin.ask("POST", f"/ui/actions/{ended['id']}/retry", {})
        assert status == 202
        assert admin.end_of(again)["outcome"] == "failed"
    status, again = admin.ask("POST", f"/ui/actions/{ended['id']}/retry", {})
    ended = admin.end_of(again)
    assert (ended["done"], ended["outcome"]) == (40, "ok")
    assert paused(cluster, names[0]) == [True, True, True]
    assert paused(cluster, names[-1]) == [True, True, True]


def test_an_order_without_nsqlookupd_goes_to_the_given_nsqd(cluster):
    with cluster.admin("nsqfast", OFTEN, direct=True) as server:
        admin = Acting(server)
        admin.wait_for_nodes("orders", 3)
        effect = admin.effect("create", "new")
        assert all(node["is_chosen"] for node in effect["nodes"])
        status, said = admin.act("create", "new")
        assert (status, said["message"]) == (400, "Not done: choose a node.")
        status, job = admin.act("delete", "orders", confirm="orders")
        assert (status, len(results(job))) == (200, 3)
        assert all("orders" not in names for names in topics_of(cluster))
