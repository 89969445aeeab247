"""Actions: what their effect counts, what they change at real nodes, and what is said of those that fail."""

import asyncio
import base64
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from aiohttp import web

from nsqfast.nsqadmin.actions.effect import effect_of_set
from nsqfast.nsqadmin.actions.jobs import KEPT_MAX, Job, Jobs
from nsqfast.nsqadmin.actions.order import Action, Item
from nsqfast.nsqadmin.actions.targets import Holding, Target, fill_holding, holdings_of
from nsqfast.nsqadmin.cluster.answers import ChannelStats, NsqdStats, TopicStats
from nsqfast.nsqadmin.cluster.history import History
from nsqfast.nsqadmin.cluster.history_file import load
from nsqfast.nsqadmin.cluster.model import EMPTY, Counts
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.results import Result
from support.admin import LiveCluster, text_of, told
from support.admin_actions import Acting, depths, paused, publish, results, topics_of
from support.json_lines import wait_for_entries
from support.lookup import lookup, topics
from support.waiting import wait_until
from support.web import post, request, stats
from support.wire import Client

OFTEN = "--poll-interval=300ms"  # so that nobody waits for it
pytestmark = [pytest.mark.go, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("actions")) as made:
        yield made


@pytest.fixture(scope="module")
def audit_file(tmp_path_factory):
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def admin(cluster, audit_file):
    with cluster.admin("nsqfast", f"--audit-file={audit_file}", OFTEN) as server:
        acting = Acting(server)
        acting.wait_for_cluster(len(cluster.nsqds))
        yield acting


@pytest.fixture
def name(request):
    """Of a topic of the test's own."""
    return request.node.name[5:][:54]


def node_of(cluster, number):
    return text_of(cluster.nsqds[number].http)


def test_effect_counts_what_each_node_has_now(cluster, admin, name):
    cluster.make(name, "billing", "other")
    publish(cluster, name, 7, 0, 5, channels=["billing", "other"])
    effect = admin.effect("empty", name, "billing")
    counted = {node["node"]: node["messages"] for node in effect["nodes"]}
    assert counted == {node_of(cluster, 0): 7, node_of(cluster, 1): 0, node_of(cluster, 2): 5}
    assert (effect["confirm"], effect["button"]) == (f"{name}/billing", "Empty billing")
    assert any(line.startswith("Not touched: other channels") for line in effect["lines"])
    status, by_get = admin.ask("GET", f"/ui/effect?action=delete&topic={name}")
    assert status == 200
    # Both channels have a copy of each message.
    assert sum(node["messages"] for node in by_get["nodes"]) == 24


def test_empty_wants_the_whole_name(cluster, admin, audit_file, name):
    cluster.make(name, "c")
    publish(cluster, name, 3, 0, 0, channels=["c"])
    for confirm in ("", "c", name, f"{name}/C", f" {name}/c"):
        status, told_why = admin.act("empty", name, "c", confirm=confirm)
        assert status == 400
        assert told_why["message"] == f"Not done: confirm has to be {name}/c"
    assert depths(cluster, name, "c") == [3, 0, 0]
    assert {e["outcome"] for e in wait_for_entries(audit_file, "empty_channel", name)} == {
        "refused"
    }


def test_empty_channel_leaves_the_others_alone(cluster, admin, audit_file, name):
    cluster.make(name, "billing", "other")
    publish(cluster, name, 4, 4, 4, channels=["billing", "other"])
    status, job = admin.act("empty", name, "billing", confirm=f"{name}/billing")
    assert (status, job["outcome"]) == (200, "ok")
    assert results(job) == {node_of(cluster, number): True for number in range(3)}
    assert depths(cluster, name, "billing") == [0, 0, 0]
    assert depths(cluster, name, "other") == [4, 4, 4]
    (entry,) = wait_for_entries(audit_file, "empty_channel", name)
    assert entry["outcome"] == "ok"
    assert entry["effect"] | {"memory": 12, "nodes": 3} == entry["effect"]
    assert (entry["effect"]["messages"], entry["effect"]["nodes_unknown"]) == (12, 0)
    assert entry["effect"]["messages_lost"] == 12
    assert len(entry["results"]) == 3


def test_the_same_order_twice_is_done_once(cluster, admin, name):
    cluster.make(name, "c", on=[0])
    publish(cluster, name, 4, 0, 0, channels=["c"])
    effect = admin.effect("empty", name, "c")
    first = admin.act("empty", name, "c", confirm=f"{name}/c", id=effect["id"])
    publish(cluster, name, 2, 0, 0, channels=["c"])
    assert admin.act("empty", name, "c", confirm=f"{name}/c", id=effect["id"]) == first
    assert depths(cluster, name, "c")[0] == 2


def test_undo_takes_back_what_the_pause_did_and_no_more(cluster, admin, audit_file, name):
    cluster.make(name, "c")
    admin.act("pause", name, "c", nodes=[node_of(cluster, 1)])
    assert paused(cluster, name, "c") == [False, True, False]
    status, job = admin.act("pause", name, "c")
    assert (status, job["can_undo"]) == (200, True)
    assert paused(cluster, name, "c") == [True, True, True]
    publish(cluster, name, 3, 0, 0, channels=["c"])
    status, undone = admin.ask("POST", f"/ui/actions/{job['id']}/undo", {})
    assert (status, undone["outcome"]) == (200, "ok")
    effect = wait_for_entries(audit_file, "unpause_channel", name)[0]["effect"]
    assert (effect["messages"], "messages_lost" in effect) == (3, False)
    assert paused(cluster, name, "c") == [False, True, False]
    assert admin.ask("POST", f"/ui/actions/{job['id']}/retry", {})[0] == 409
    _, empty = admin.act("empty", name, "c", confirm=f"{name}/c")
    assert admin.ask("POST", f"/ui/actions/{empty['id']}/undo", {})[0] == 400
    assert len(wait_for_entries(audit_file, "pause_channel", name)) == 2
    assert len(wait_for_entries(audit_file, "unpause_channel", name)) == 1
    _, again = admin.act("pause", name, "c", nodes=[node_of(cluster, 1)])
    assert not again["can_undo"]
    assert admin.ask("POST", f"/ui/actions/{again['id']}/undo", {})[0] == 409


def test_nobody_is_told_who_is_not_of_the_cluster_and_nothing_that_is_not_there(
    cluster, admin, name
):
    cluster.make(name, "c")
    for node in ("127.0.0.1:1", "example.org:80", text_of(cluster.lookupds[0].http)):
        status, said = admin.act("pause", name, nodes=[node])
        assert (status, said["message"]) == (400, f"The cluster has no node {node}.")
    status, said = admin.act("pause", "no-such-topic")
    assert (status, said["message"]) == (404, "No node has the topic no-such-topic.")
    status, _ = admin.ask("POST", "/ui/effect", {"action": "pause", "topic": "no-such-topic"})
    assert status == 404
    assert admin.ask("GET", "/ui/effect?action=explode&topic=t")[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"action": "explode", "topic": "t"},
        {"action": "pause"},
        {"action": "pause", "topic": ["t"]},
        {"action": "tombstone", "topic": "t"},
        {"action": "tombstone", "topic": "t", "nodes": []},
        {"action": "create", "view": "/topics", "table": "topics"},
        {"action": "pause", "view": "/nowhere", "table": "topics"},
        {"action": "pause", "view": "/topics", "table": "nothing"},
        {"action": "pause", "items": []},
        {"action": "pause", "items": [{"topic": "t"}], "nodes": ["127.0.0.1:1"]},
        {"action": "pause", "topic": "t", "id": "x"},
        {"action": "create", "topic": "<b>"},
        {"action": "create", "topic": "t", "channel": "a b"},
        [],
        "x",
    ],
    ids=str,
)
def test_bad_orders_are_400_with_a_text(admin, body):
    status, said = admin.ask("POST", "/ui/actions", body)
    assert status == 400
    assert said["message"]


def test_publish_refuses_nonsense(admin):
    for changes in (
        {"count": 0},
        {"count": 1001},
        {"defer_ms": -1},
        {"body": "%", "is_base64": True},
        {"topic": "a b"},
        {"node": "127.0.0.1:1"},
        {"body": None},
    ):
        status, said = admin.ask("POST", "/ui/publish", {"topic": "t", "body": "x"} | changes)
        assert status == 400, changes
        assert said["message"]


def test_create_at_nsqlookupd_alone_and_on_nodes(cluster, admin, audit_file, name):
    status, job = admin.act("create", name)
    assert status == 200
    lookupds = {text_of(one.http) for one in cluster.lookupds}
    assert set(results(job)) == lookupds
    assert all(name not in topics for topics in topics_of(cluster))
    assert all(name in topics(one.http) for one in cluster.lookupds)
    effect = admin.effect("create", name)
    assert not any(node["is_chosen"] for node in effect["nodes"])
    nodes = [node_of(cluster, 0), node_of(cluster, 2)]
    status, job = admin.act("create", name, "c", nodes=nodes)
    assert (status, job["outcome"]) == (200, "ok")
    assert depths(cluster, name, "c") == [0, -1, 0]
    assert admin.act("create", f"{name}2", nodes=nodes)[0] == 200
    assert [f"{name}2" in topics for topics in topics_of(cluster)] == [True, False, True]
    (entry,) = wait_for_entries(audit_file, "create_channel", name)
    assert {result["node"] for result in entry["results"]} == {*nodes, *lookupds}
    admin.wait_for_nodes(name, 2)
    offered = admin.effect("create", name, "d")["nodes"]
    assert {node["node"] for node in offered if node["is_chosen"]} == set(nodes)


def test_an_inactive_topic_is_deleted_at_nsqlookupd(cluster, admin, name):
    for one in cluster.lookupds:
        told(one, f"/topic/create?topic={name}")
    admin.wait_for_nodes(name, 0)
    effect = admin.effect("delete", name)
    assert effect["nodes"] == []
    assert effect["lines"][0].startswith("Only nsqlookupd knows it")
    assert effect["confirm"] == name
    status, job = admin.act("delete", name, confirm=name)
    assert (status, job["outcome"]) == (200, "ok")
    assert not any(name in topics(one.http) for one in cluster.lookupds)


def test_what_one_nsqlookupd_never_had_is_deleted_at_the_other(cluster, admin, name):
    told(cluster.lookupds[0], f"/channel/create?topic={name}&channel=c")
    order = {"action": "delete", "topic": name, "channel": "c"}
    wait_until(lambda: admin.ask("POST", "/ui/effect", order)[0] == 200, "it is known")
    status, job = admin.act("delete", name, "c", confirm=f"{name}/c")
    assert (status, job["outcome"]) == (200, "ok")
    assert {result["text"] for result in job["items"][0]["results"]} == {"", "was not there"}


def test_delete_on_one_node_leaves_the_others_and_nsqlookupd_alone(cluster, admin, name):
    cluster.make(name)
    nodes = [node_of(cluster, 1)]
    status, job = admin.act("delete", name, confirm=name, nodes=nodes, tell_lookupds=False)
    assert (status, list(results(job))) == (200, nodes)
    assert [name in topics for topics in topics_of(cluster)] == [True, False, True]


def test_tombstone_hides_and_deletes_the_topic_on_one_node_only(cluster, admin, audit_file, name):
    cluster.make(name, "c")
    node = node_of(cluster, 0)
    effect = admin.effect("tombstone", name, nodes=[node])
    assert effect["title"] == f"Tombstone topic {name} on node {node}"
    assert any("keeps publishing" in line for line in effect["lines"])
    status, job = admin.act("tombstone", name, nodes=[node])
    assert (status, job["outcome"]) == (200, "ok")
    assert [name in topics for topics in topics_of(cluster)] == [False, True, True]
    for one in cluster.lookupds:
        assert len(lookup(one.http, name)["producers"]) == 2
    (entry,) = wait_for_entries(audit_file, "tombstone_topic_producer", name)
    assert entry["target"] == {"topic": name, "node": node}


def view_of(search):
    return {"view": f"/topics?q={search}", "table": "topics"}


def test_all_matching_hits_exactly_those_and_a_changed_set_asks_again(cluster, admin):
    for number in range(18):
        cluster.make(f"bulk-{number}" + ("-few" if number % 5 == 0 else ""), on=[number % 3])
    view = view_of("bulk-+few")
    effect = admin.effect("pause", **view)
    assert [item["topic"] for item in effect["items"]] == [
        "bulk-0-few",
        "bulk-10-few",
        "bulk-15-few",
        "bulk-5-few",
    ]
    cluster.make("bulk-99-few", on=[0])
    status, said = admin.act("pause", hash=effect["hash"], **view)
    assert status == 409
    assert [item["topic"] for item in said["effect"]["items"]][-1] == "bulk-99-few"
    status, job = admin.act("pause", hash=said["effect"]["hash"], **view)
    assert status == 202
    job = admin.end_of(job)
    assert (job["outcome"], job["done"], job["can_undo"]) == ("ok", 5, True)
    assert [item["results"] for item in job["items"]] == [[]] * 5  # of a set, what failed
    found = {t["topic_name"]: t["paused"] for n in cluster.nsqds for t in stats(n.http)["topics"]}
    assert {topic for topic, is_paused in found.items() if is_paused} == {
        item["topic"] for item in said["effect"]["items"]
    }
    status, undone = admin.ask("POST", f"/ui/actions/{job['id']}/undo", {})
    assert admin.end_of(undone)["outcome"] == "ok"
    assert not any(t["paused"] for n in cluster.nsqds for t in stats(n.http)["topics"])


def test_a_set_wants_its_number_typed(cluster, admin, audit_file):
    for name in ("count-a", "count-b"):
        cluster.make(name, "c", on=[0])
        publish(cluster, name, 2, 0, 0, channels=["c"])
    view = view_of("count-")
    effect = admin.effect("delete", **view)
    assert [item["messages"] for item in effect["items"]] == [2, 2]
    assert effect["confirm"] == "2"
    for confirm in ("", "1", "count-a"):
        assert admin.act("delete", hash=effect["hash"], confirm=confirm, **view)[0] == 400
    assert {"count-a", "count-b"} <= set(topics_of(cluster)[0])
    status, job = admin.act("delete", hash=effect["hash"], confirm="2", **view)
    assert (status, admin.end_of(job)["outcome"]) == (202, "ok")
    assert not {"count-a", "count-b"} & set(topics_of(cluster)[0])
    (entry,) = wait_for_entries(audit_file, "delete_topic", "count-b")
    assert entry["effect"]["one_of"] == 2


def test_picked_channels_of_two_topics(cluster, admin):
    items = []
    for topic in ("picked-a", "picked-b"):
        cluster.make(topic, "x", "y", on=[1])
        publish(cluster, topic, 0, 3, 0, channels=["x", "y"])
        items.append({"topic": topic, "channel": "x"})
    admin.wait_for_nodes("picked-b", 1)
    effect = admin.effect("empty", items=items)
    assert [item["messages"] for item in effect["items"]] == [3, 3]
    order = {"items": items, "hash": effect["hash"], "confirm": "2"}
    _, job = admin.act("empty", **order)
    assert admin.end_of(job)["outcome"] == "ok"
    for topic in ("picked-a", "picked-b"):
        assert depths(cluster, topic, "x") == [-1, 0, -1]
        assert depths(cluster, topic, "y") == [-1, 3, -1]


def test_more_than_500_are_refused(cluster, admin):
    for number in range(501):
        told(cluster.lookupds[0], f"/topic/create?topic=many-{number}")
    status, said = admin.ask("POST", "/ui/effect", {"action": "delete", **view_of("many-")})
    assert status == 400
    assert said["message"].startswith("501 match, at most 500")
    effect = admin.effect("delete", **view_of("many-1"))
    fill_holding = len(effect["items"])
    status, job = admin.act(
        "delete", hash=effect["hash"], confirm=str(fill_holding), **view_of("many-1")
    )
    assert admin.end_of(job)["outcome"] == "ok"
    assert not any(topic.startswith("many-1") for topic in topics(cluster.lookupds[0].http))


@pytest.mark.parametrize(
    ("channel", "is_whole", "found"),
    [("", False, (3, 2, 0, 0, 4)), ("", True, (7, 5, 1, 2, 4)), ("c", False, (4, 3, 1, 2, 4))],
)
def test_what_nsqd_says_of_a_topic_and_of_its_channel(channel, is_whole, found):
    """In memory, on disk, in flight, deferred, clients."""
    inside = ChannelStats(
        channel_name="c",
        depth=7,
        backend_depth=3,
        in_flight_count=1,
        deferred_count=2,
        client_count=4,
    )
    topic = TopicStats(topic_name="t", depth=5, backend_depth=2, channels=[inside])
    holding = Holding("n")
    fill_holding(holding, NsqdStats(topics=[topic]), Item("t", channel), is_whole=is_whole)
    names = ("memory", "disk", "in_flight", "deferred", "clients")
    assert tuple(getattr(holding, name) for name in names) == found


@pytest.mark.parametrize(
    ("channel", "is_whole", "messages", "clients"),
    [("", False, 15, 10), ("", True, 30, 10), ("c", False, 15, 5)],
)
def test_what_the_poller_knows_of_an_item_of_a_set(channel, is_whole, messages, clients):
    counts = Counts(depth=3, backend_depth=2, in_flight_count=4, deferred_count=8, client_count=5)
    parts = [SimpleNamespace(node="n", counts=counts, paused=False)]
    topic = SimpleNamespace(parts=parts, channels={"c": SimpleNamespace(parts=parts)})
    node = SimpleNamespace(hostname="h", error="gone")
    item, cluster = Item("t", channel), replace(EMPTY, topics={"t": topic}, nodes={"n": node})
    target = Target(item, holdings_of(cluster, item, is_whole=is_whole))
    effect = asyncio.run(effect_of_set(Action.PAUSE, [target], "id"))
    assert effect.title == f"Pause 1 {item.kind}"
    assert effect.nodes_down == ["n"]
    assert [(row.messages, row.clients) for row in effect.items] == [(messages, clients)]


async def test_some_jobs_are_kept_and_each_has_the_outcome_of_its_results():
    outcomes = []

    async def begin():
        job = Job("x", Action.PAUSE, [])
        for ok in ((True, True), (True, False), (False, False))[len(outcomes) % 3]:
            job.add(Target(Item("t"), []), [Result("n", ok=ok)])
        outcomes.append(job.outcome)
        job.ended.set()
        return job

    jobs = Jobs(None)
    for number in range(KEPT_MAX + 5):
        await jobs.once("ana", str(number), begin)
    assert not jobs.get("ana", str(KEPT_MAX)).is_running
    may_end = asyncio.Event()
    begun = asyncio.ensure_future(jobs.once("ana", "slow", may_end.wait))
    await asyncio.sleep(0)
    for job_id in ("0", "slow"):
        with pytest.raises(web.HTTPNotFound):
            jobs.get("ana", job_id)
    may_end.set()
    await begun
    assert outcomes[:3] == ["ok", "partial", "failed"]


def test_a_consumer_is_disconnected(cluster, admin, audit_file, name):
    cluster.make(name, "c")
    admin.wait_for_nodes(name, 3)
    path = "/ui/clients/disconnect"
    given = {"topic": name, "channel": "c", "node": node_of(cluster, 0)}
    with Client(cluster.nsqds[0].tcp) as stuck:
        stuck.sub(name, "c", 1)
        address = "{}:{}".format(*stuck.socket.getsockname())
        status, said = admin.ask("POST", path, given | {"address": address})
        assert (status, [result["ok"] for result in said["results"]]) == (200, [True])
        assert stuck.read_to_end() == b""
    status, said = admin.ask("POST", path, given | {"address": address})
    assert (status, said["message"]) == (502, "it is not connected any more")
    entries = wait_for_entries(audit_file, "disconnect_client", name, 2)
    assert [entry["outcome"] for entry in entries] == ["ok", "failed"]
    assert entries[0]["effect"] == {"address": address}
    status, said = admin.ask(
        "POST", path, given | {"address": address, "node": node_of(cluster, 2)}
    )
    assert (status, said["message"].endswith("cannot do this")) == (502, True)
    assert admin.ask("POST", path, given | {"address": address, "node": "127.0.0.1:1"})[0] == 404
    for wrong in ("", "x", "a:1&topic=b", "a:1\n", "[::1]:123456"):
        assert admin.ask("POST", path, given | {"address": wrong})[0] == 400


def test_publish_goes_to_the_chosen_node(cluster, admin, audit_file, name):
    cluster.make(name, "c")
    body = {"topic": name, "body": "grüße <b>", "count": 3, "node": node_of(cluster, 2)}
    status, said = admin.ask("POST", "/ui/publish", body)
    assert (status, said["sent"], said["outcome"]) == (200, 3, "ok")
    assert depths(cluster, name, "c") == [0, 0, 3]
    (entry,) = wait_for_entries(audit_file, "publish", name)
    assert entry["effect"] == {"size": 11, "count": 3, "sent": 3, "defer_ms": 0}
    assert "grüße" not in json.dumps(entry, ensure_ascii=False)
    body = base64.b64encode(bytes(range(256))).decode()
    given = {"topic": name, "body": body, "is_base64": True, "defer_ms": 60000}
    assert admin.ask("POST", "/ui/publish", given | {"node": node_of(cluster, 2)})[0] == 200

    def counted():
        nodes = {each["node"]: each for each in admin.effect("empty", name, "c")["nodes"]}
        node = nodes[node_of(cluster, 2)]
        return (node["deferred"], node["memory"], node["messages"]) == (1, 3, 4)

    wait_until(counted, "one deferred message")
    given = {"topic": name, "body": "to whichever node has the topic"}
    assert admin.ask("POST", "/ui/publish", given)[0] == 200


@pytest.mark.parametrize(
    ("changes", "status", "word"),
    [
        ({"body": ""}, 400, "400 MSG_EMPTY"),
        ({"body": "x" * (1 << 20) + "y"}, 413, "413 MSG_TOO_BIG"),
        ({"defer_ms": 10**9}, 400, "400 INVALID_DEFER"),
    ],
    ids=["empty", "large", "defer"],
)
@pytest.mark.parametrize("number", [0, 2], ids=["ours", "go"])
def test_publish_shows_what_nsqd_refuses(cluster, admin, number, changes, status, word):
    cluster.make("refusing", "c")
    given = {"topic": "refusing", "body": "x", "node": node_of(cluster, number)} | changes
    got, said = admin.ask("POST", "/ui/publish", given)
    assert (got, said["sent"], said["text"]) == (status, 0, word)


def test_viewers_have_nothing_of_actions_and_admins_their_own_jobs(cluster, name):
    cluster.make(name, "c")
    with cluster.admin("nsqfast", "--admin-user=ana", "--admin-user=eve", OFTEN) as server:
        ana, eve, viewer = (Acting(server, {"X-Forwarded-User": u}) for u in ("ana", "eve", "bob"))
        ana.wait_for_nodes(name, 3)
        for path in ("/topics", f"/topics/{name}", f"/topics/{name}/c", "/lookup", "/nodes"):
            page = request(server.http, "GET", path, None, viewer.headers).body
            for word in (b"data-action", b"actions.js", b'id="action"', b'name="pick"'):
                assert word not in page, path
        assert b"actions.js" in request(server.http, "GET", "/topics", None, ana.headers).body
        status, job = ana.act("pause", name)
        assert status == 200
        assert eve.ask("GET", f"/ui/actions/{job['id']}")[0] == 404
        assert ana.ask("GET", f"/ui/actions/{job['id']}")[0] == 200


def test_an_action_leaves_a_mark_in_the_charts(cluster, tmp_path, name):
    cluster.make(name, "c")
    path = tmp_path / "history"
    with cluster.admin("nsqfast", f"--history-file={path}", OFTEN) as server:
        acting = Acting(server)
        acting.wait_for_nodes(name, 3)
        assert acting.act("pause", name, "c")[0] == 200
        assert acting.act("pause", "no-such-topic")[0] == 404
        assert post(server.http, f"/api/topics/{name}/c", b'{"action":"unpause"}').status == 200
        assert post(server.http, "/api/topics/no-such-topic", b'{"action":"pause"}').status != 200
        server.stop()
    options = Options(history_file=str(path))
    history = History(options)
    _, marks = load(str(path), history.tables, options.history_memory)
    assert [(mark.text, mark.key) for mark in marks] == [
        ("Paused channel c", ("channel", name, "c")),
        ("Unpaused channel c", ("channel", name, "c")),
    ]
