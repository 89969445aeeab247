"""Policies of nodes side by side and their changes on all of them; that of a channel on its page."""

import json
from urllib.parse import urlencode

import pytest

from nsqadmin.test_commit_log import start_admin
from support.access import FORM
from support.admin import text_of
from support.fake_stats import FakeStats
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import get, post, request, topic_stats

HOSTILE = '<img src=x onerror="alert(1)">' * 99


DROP = {"max_messages": 2, "overflow": "drop_head"}


def wait_for_nodes(admin, count):
    """Until the cluster has so many."""
    known = f"{count} nodes are known"
    wait_until(lambda: len(get(admin.http, "/ui/policies").json()["nodes"]) == count, known)


def results(answer):
    """By node."""
    return {one.pop("node"): one for one in answer.json()["results"]}


@pytest.fixture
def two(tmp_path):
    """Two nsqd, each with three messages in topic t, channel c, and an nsqadmin that knows them."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    with start_nsqd("nsqfast", folders[0]) as a, start_nsqd("nsqfast", folders[1]) as b:
        for broker in (a, b):
            post(broker.http, "/topic/create?topic=t")
            post(broker.http, "/channel/create?topic=t&channel=c")
            post(broker.http, "/mpub?topic=t", b"1\n2\n3")
        with start_admin(text_of(a.http), text_of(b.http)) as admin:
            wait_for_nodes(admin, 2)
            yield admin, a, b


def change(admin, do, name="p", **given):
    body = json.dumps({"name": name, "do": do, **given}).encode()
    headers = {"Content-Type": "application/json"}
    return request(admin.http, "POST", "/ui/policies", body, headers)


def names(broker):
    return [each["name"] for each in get(broker.http, "/policies").json()["policies"]]


def depth(broker):
    return topic_stats(broker.http, "t")["channels"]["c"]["depth"]


@pytest.mark.slow
def test_a_policy_is_set_on_all_nodes_and_removed(two):
    admin, a, b = two
    tried = change(admin, "try", topic="^t$", definition=DROP)
    assert tried.status == 200
    queues = [{"topic": "t", "channel": channel, "beyond": len(channel)} for channel in ("", "c")]
    told = {"ok": True, "text": "", "changed": 2, "dropping": 2, "queues": queues}
    assert results(tried) == {text_of(broker.http): told for broker in (a, b)}
    assert (names(a), names(b)) == ([], [])
    # It drops messages, which somebody has to want.
    refused = change(admin, "put", topic="^t$", definition=DROP)
    assert refused.status == 409
    assert "of 4 queues may go at once" in refused.json()["message"]
    assert (names(a), depth(a)) == ([], 3)
    assert change(admin, "put", topic="^t$", definition=DROP, confirm="p").status == 200
    assert (names(a), names(b), depth(a), depth(b)) == (["p"], ["p"], 2, 2)
    assert "on all nodes" in get(admin.http, "/policies").body.decode()
    # A limit in bytes drops, too; what refuses instead needs no word.
    small = {"max_bytes": 1, "overflow": "drop_head"}
    assert change(admin, "put", topic="^t$", definition=small).status == 409
    assert (depth(a), depth(b)) == (2, 2)
    more = {"max_messages": 9}
    assert change(admin, "put", topic="^t$", definition=json.dumps(more)).status == 200
    known = get(admin.http, "/ui/policies").json()["nodes"]
    assert {node["policies"][0]["definition"]["max_messages"] for node in known.values()} == {9}
    # Its end may let another one hold, which drops.
    below = {"topic": "t", "priority": -1, "definition": DROP}
    request(a.http, "PUT", "/policies/below", json.dumps(below).encode())
    assert change(admin, "delete").status == 409
    request(a.http, "DELETE", "/policies/below")
    removed = change(admin, "try_delete")
    assert [one["changed"] for one in removed.json()["results"]] == [2, 2]
    assert names(a) == ["p"]
    assert change(admin, "delete").status == 200
    assert (names(a), names(b)) == ([], [])
    assert change(admin, "delete").status == 200  # nothing is left to do
    audit = get(admin.http, "/audit").body.decode()
    assert audit.count("delete_policy") >= 2
    assert "put_policy" in audit


@pytest.mark.slow
def test_nodes_that_differ_are_said_to(two):
    admin, a, b = two
    body = b'{"topic":"t","definition":{"max_messages":%d}}'
    request(a.http, "PUT", "/policies/one", body % 5)
    assert "on 1 of 2 nodes" in get(admin.http, "/policies").body.decode()
    request(b.http, "PUT", "/policies/one", body % 6)
    page = get(admin.http, "/policies?edit=one").body.decode()
    assert page.count("differs: 1 of 2 nodes") >= 2
    assert "max_messages 5" in page
    assert "max_messages 6" in page
    assert 'value="one"' in page
    b.kill()
    page = get(admin.http, "/policies").body.decode()
    assert "on all nodes" in page
    assert f"{text_of(b.http)}: " in page
    failed = change(admin, "put", topic="t", definition={"max_messages": 7})
    assert failed.status == 502
    assert [results(failed)[text_of(node.http)]["ok"] for node in (a, b)] == [True, False]


@pytest.mark.slow
def test_what_nsqd_says_of_a_bad_policy_is_shown(two):
    admin, a, _ = two
    answer = change(admin, "try", topic="(", definition={"max_messages": 1})
    assert answer.status == 400
    assert "topic is no expression of RE2" in answer.json()["message"]
    for given in (
        {"name": "a/b", "definition": {}},
        {"name": "p", "definition": "{"},
        {"name": "p", "priority": "high"},
        {"name": "p", "do": "explode"},
    ):
        body = json.dumps({"do": "put", **given}).encode()
        answer = request(
            admin.http, "POST", "/ui/policies", body, {"Content-Type": "application/json"}
        )
        assert answer.status == 400, given
    assert names(a) == []


@pytest.mark.slow
def test_the_form_does_the_same_without_scripts(two):
    admin, a, b = two
    fields = {"name": "p", "topic": "^t$", "channel": "", "priority": "4", "confirm": ""}
    fields["definition"] = json.dumps(DROP)

    def send(do, **more):
        body = urlencode(fields | {"do": do} | more).encode()
        headers = FORM | {"Accept": "text/html"}
        answer = request(admin.http, "POST", "/ui/policies", body, headers)
        return answer.status, answer.body.decode()

    status, page = send("try")
    assert status == 200
    assert "what it would change" in page
    status, page = send("put")
    assert status == 409
    assert "type its name to confirm" in page
    assert "^t$" in page
    status, page = send("put", confirm="p")
    assert status == 200
    assert get(b.http, "/policies/p").json()["priority"] == 4
    assert send("delete")[0] == 200
    assert names(a) == []


@pytest.mark.slow
@pytest.mark.go
def test_a_node_of_go_cannot(tmp_path):
    for name in ("go", "ours"):
        (tmp_path / name).mkdir()
    with (
        start_nsqd("go", tmp_path / "go") as go,
        start_nsqd("nsqfast", tmp_path / "ours") as ours,
        start_admin(text_of(go.http), text_of(ours.http)) as admin,
    ):
        wait_for_nodes(admin, 2)
        known = get(admin.http, "/ui/policies").json()["nodes"]
        assert known[text_of(go.http)] == {"error": "it has no policies: only nsqfast-nsqd does"}
        answer = change(admin, "put", topic="t", definition={"max_messages": 1})
        assert answer.status == 200
        assert [results(answer)[text_of(node.http)]["ok"] for node in (go, ours)] == [False, True]
        page = get(admin.http, "/policies").body.decode()
        assert "only nsqfast-nsqd does" in page
        assert "on all nodes" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [
        {"policies": [{"name": HOSTILE, "topic": HOSTILE, "definition": {HOSTILE: HOSTILE}}]},
        {"policies": 7},
        {"policies": [{"name": "p", "priority": 1 << 60}]},
        [],
    ],
)
def test_a_node_that_lies_about_its_policies(said):
    stats = {"version": "1.3.0", "health": "OK", "start_time": 1, "topics": []}
    answers = {"/stats": stats, "/policies": said}
    with (
        FakeStats(lambda path, _: answers.get(path)) as liar,
        start_admin(liar.address) as admin,
    ):
        wait_for_nodes(admin, 1)
        page = get(admin.http, "/policies").body.decode()
        assert "<img" not in page
        assert len(page) < 60_000


def page(admin):
    return get(admin.http, "/topics/t/c").body.decode()


@pytest.mark.slow
def test_a_real_node(tmp_path):
    with (
        start_nsqd("nsqfast", tmp_path) as broker,
        start_admin(text_of(broker.http)) as admin,
    ):
        post(broker.http, "/topic/create?topic=t")
        post(broker.http, "/channel/create?topic=t&channel=c")
        wait_until(lambda: get(admin.http, "/topics/t/c").status == 200, "the channel is known")
        assert "Policy" not in page(admin)
        body = (
            b'{"topic":"t","definition":{"max_messages":2,"overflow":"drop_head","max_rate":0.5}}'
        )
        assert request(broker.http, "PUT", "/policies/small", body).status == 200
        post(broker.http, "/mpub?topic=t", b"1\n2\n3")
        shown = "small: max_messages 2, overflow drop_head, max_rate 0.5; 1 dropped"
        wait_until(lambda: shown in page(admin), "the policy is shown")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "is_valid"),
    [
        ({"name": HOSTILE, "overflow": HOSTILE, "max_rate": 1e300, "more": [HOSTILE]}, True),
        ({"name": 7}, False),
        ({"max_messages": 1 << 60}, False),
        ([], False),
    ],
)
def test_a_node_that_lies_about_it(policy, is_valid):
    channel = {"channel_name": "c", "policy": policy, "dropped_count": -1}
    said = {"version": "1.3.0", "health": "OK", "start_time": 1}
    said["topics"] = [{"topic_name": "t", "channels": [channel]}]
    with (
        FakeStats(lambda path, _: said if path == "/stats" else None) as liar,
        start_admin(liar.address) as admin,
    ):
        wait_until(lambda: get(admin.http, "/topics/t/c").status == 200, "the channel is known")
        wait_until(lambda: ("Policy" in page(admin)) == is_valid, "the policy is shown, or not")
        assert "<img" not in page(admin)
        assert ("&lt;img" in page(admin)) == is_valid
