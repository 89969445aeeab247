"""POST and DELETE below /api: what both nsqadmin answer, and what the cluster looks like then."""

import json

import pytest

from support.admin import LiveCluster, text_of, told
from support.lookup import channels, lookup, topics
from support.waiting import wait_until
from support.web import request, topic_stats

pytestmark = [pytest.mark.go, pytest.mark.slow]

KINDS = ("nsqfast", "go")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("writes")) as made:
        yield made


@pytest.fixture(scope="module")
def admins(cluster):
    """By kind and mode."""
    with cluster.admins() as usual, cluster.admins(direct=True) as direct:
        yield {
            ("nsqfast", "lookupd"): usual.ours,
            ("go", "lookupd"): usual.theirs,
            ("nsqfast", "direct"): direct.ours,
            ("go", "direct"): direct.theirs,
        }


@pytest.fixture(
    params=[(kind, mode) for mode in ("lookupd", "direct") for kind in KINDS], ids="-".join
)
def admin(request, admins):
    """Each of them must stand the same test; `name` makes names of its own."""
    server = admins[request.param]
    kind, mode = request.param

    def ask(method, target, body=None):
        return do(server, method, target, body)

    ask.kind, ask.mode = kind, mode
    ask.name = f"{request.node.originalname[5:]}-{kind}-{mode}"[:54]
    return ask


def do(server, method, target, body=None):
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    return request(server.http, method, target, data)


def is_well(answer):
    assert (answer.status, answer.body) == (200, b'{"message":""}'), answer
    return True


def states(cluster, topic, channel=None):
    """Whether it is paused, and how much waits, on each nsqd; None where it is not."""
    found = []
    for nsqd in cluster.nsqds:
        one = topic_stats(nsqd.http, topic)
        if one is not None and channel is not None:
            one = one["channels"].get(channel)
        found.append(None if one is None else (one["paused"], one["depth"]))
    return found


def test_create_topic(cluster, admin):
    assert is_well(admin("POST", "/api/topics", {"topic": admin.name, "channel": ""}))
    for lookupd in cluster.lookupds:
        assert (admin.name in topics(lookupd.http)) is (admin.mode == "lookupd")
    assert states(cluster, admin.name) == [None, None, None]


def test_create_channel(cluster, admin):
    if admin.mode == "direct":
        answer = admin("POST", "/api/topics", {"topic": admin.name, "channel": "c"})
        message = "UPSTREAM_ERROR: failed to query any nsqlookupd: "
        assert (answer.status, answer.json()["message"]) == (502, message)
        return
    cluster.make(admin.name, on=[0, 2])
    assert is_well(admin("POST", "/api/topics", {"topic": admin.name, "channel": "c#ephemeral"}))
    assert states(cluster, admin.name, "c#ephemeral") == [(False, 0), None, (False, 0)]
    for lookupd in cluster.lookupds:
        assert channels(lookupd.http, admin.name) == ["c#ephemeral"]


def test_pause_and_unpause(cluster, admin):
    cluster.make(admin.name, "c", "d")
    for action, is_paused in (("pause", True), ("unpause", False)):
        assert is_well(admin("POST", f"/api/topics/{admin.name}", {"action": action}))
        assert states(cluster, admin.name) == [(is_paused, 0)] * 3
        assert is_well(admin("POST", f"/api/topics/{admin.name}/c", {"action": action}))
        assert states(cluster, admin.name, "c") == [(is_paused, 0)] * 3
        assert states(cluster, admin.name, "d") == [(False, 0)] * 3


def test_empty(cluster, admin):
    cluster.make(admin.name, "c", "d")
    for number in range(3):
        cluster.publish(admin.name, 2, on=number)
    assert is_well(admin("POST", f"/api/topics/{admin.name}/c", {"action": "empty"}))
    assert states(cluster, admin.name, "c") == [(False, 0)] * 3
    assert states(cluster, admin.name, "d") == [(False, 2)] * 3
    for nsqd in cluster.nsqds:
        told(nsqd, f"/channel/delete?topic={admin.name}&channel=c")
        told(nsqd, f"/channel/delete?topic={admin.name}&channel=d")
    cluster.publish(admin.name, 3)
    assert states(cluster, admin.name)[0] == (False, 3)
    assert is_well(admin("POST", f"/api/topics/{admin.name}", {"action": "empty"}))
    assert states(cluster, admin.name) == [(False, 0)] * 3


def test_delete(cluster, admin):
    cluster.make(admin.name, "c#ephemeral", "d", on=[0, 2])
    assert is_well(admin("DELETE", f"/api/topics/{admin.name}/c%23ephemeral")), admin.name
    assert states(cluster, admin.name, "c#ephemeral") == [None] * 3
    assert states(cluster, admin.name, "d") == [(False, 0), None, (False, 0)]
    assert is_well(admin("DELETE", f"/api/topics/{admin.name}"))
    assert states(cluster, admin.name) == [None] * 3
    for lookupd in cluster.lookupds:
        # In direct mode nsqlookupd hears it from the nsqd.
        wait_until(lambda one=lookupd: not producers(one, admin.name), "nobody has it any more")


def producers(lookupd, topic):
    found = lookup(lookupd.http, topic)
    return found["producers"] if found else []


def test_delete_of_what_nobody_has(admin):
    answer = admin("DELETE", f"/api/topics/{admin.name}")
    if admin.mode == "direct":
        assert is_well(answer)
    else:
        assert answer.status == 502
        assert answer.json()["message"].startswith(
            'UPSTREAM_ERROR: failed to query any nsqlookupd: got response 404 Not Found "{'
        )


def test_a_channel_that_only_some_have(cluster, admin):
    # A node that gets a topic asks nsqlookupd for its channels. Once it has the first one it has its answer, so that a
    # channel made after that stays on one node.
    cluster.make(admin.name, "first", on=(1,))
    for node in (cluster.nsqds[0], cluster.nsqds[2]):
        told(node, f"/topic/create?topic={admin.name}")
    wait_until(lambda: None not in states(cluster, admin.name, "first"), "first everywhere")
    told(cluster.nsqds[1], f"/channel/create?topic={admin.name}&channel=c")
    # Each nsqd tells nsqlookupd in its own time; before that there would be other warnings, or fewer.
    cluster.wait_for_topic(admin.name, 3, 2)
    for method, body in (("POST", {"action": "pause"}), ("DELETE", None)):
        answer = admin(method, f"/api/topics/{admin.name}/c", body)
        missing = r'got response 404 Not Found "{\"message\":\"CHANNEL_NOT_FOUND\"}"'
        assert answer.status == 200
        assert answer.json()["message"] == "WARNING: " + "\n".join([missing] * 2)
    assert states(cluster, admin.name, "c") == [None] * 3


BROKEN = [
    b"",
    b"  ",
    b"[",
    b"[]",
    b"null",
    b"{}",
    b'"text"',
    b'{"topic":1}',
    b'{"topic":["a"],"action":{}}',
    b'{"topic":"a" "b"}',
    b'{"topic" 1}',
    b'{topic:"a"}',
    b'{"topic":"a',
    b'{"topic":"no good"}',
    b'{"action":"explode","channel":"no good"}',
    b'{"action":null}',
    b'{"action":"PAUSE"}',
    b'{"topic":"' + b"a" * 65 + b'"}',
]


def test_bodies_that_are_no_good(cluster, admins):
    node = text_of(cluster.nsqds[0].http)
    for body in BROKEN:
        for method, path in (
            ("POST", "/api/topics"),
            ("POST", "/api/topics/nobody"),
            ("POST", "/api/topics/nobody/knows"),
            ("DELETE", f"/api/nodes/{node}"),
        ):
            ours, theirs = (do(admins[kind, "lookupd"], method, path, body) for kind in KINDS)
            assert ours.status == theirs.status == 400, (method, path, body)
            assert ours.body == theirs.body, (method, path, body)
    for kind in KINDS:
        answer = do(
            admins[kind, "lookupd"], "POST", "/api/topics", {"topic": "a", "channel": "b c"}
        )
        assert (answer.status, answer.body) == (400, b'{"message":"INVALID_CHANNEL"}')
    endless = b'{"topic":"' + b"a" * (2 << 20) + b'"}'
    answer = do(admins["nsqfast", "lookupd"], "POST", "/api/topics", endless)
    assert (answer.status, answer.body) == (413, b'{"message":"BODY_TOO_BIG"}')


def test_bodies_as_go_reads_them(cluster, admins):
    cluster.make("lenient")
    for body in (b'{"ACTION":"pause"}', b'{"action":"empty","action":"pause"} trailing'):
        for kind in KINDS:
            told(cluster.nsqds[0], "/topic/unpause?topic=lenient")
            is_well(do(admins[kind, "direct"], "POST", "/api/topics/lenient", body))
            assert states(cluster, "lenient")[0] == (True, 0)


def test_tombstone(cluster, admin):
    cluster.make(admin.name, "c")
    node = text_of(cluster.nsqds[1].http)
    assert is_well(admin("DELETE", f"/api/nodes/{node}", {"topic": admin.name}))
    assert states(cluster, admin.name) == [(False, 0), None, (False, 0)]
    cluster.wait_for_topic(admin.name, 2)
    # And that of a node that nobody knows: ours does not ask it.
    answer = admin("DELETE", "/api/nodes/127.0.0.1:1", {"topic": admin.name})
    cause = 'Get "http://127.0.0.1:1/info": dial tcp 127.0.0.1:1: connect: connection refused'
    message = f"UPSTREAM_ERROR: failed to query any nsqd: {cause}"
    expected = {"go": (502, message), "nsqfast": (404, "NODE_NOT_FOUND")}
    assert (answer.status, answer.json()["message"]) == expected[admin.kind]


def test_only_admins_may(cluster):
    """The check comes before the body is looked at, and reads are free."""
    flags = ("--admin-user=ann", "--admin-user=bob", "--acl-http-header=X-Who")
    cluster.make("guarded", "c")
    with cluster.admins(*flags) as pair:
        for who in ({}, {"X-Who": "eve"}, {"X-Forwarded-User": "ann"}, {"X-Who": "ANN"}):
            for method, body in (("POST", b"x"), ("DELETE", None)):
                for answer in pair.ask(method, "/api/topics/guarded/c", body, who):
                    assert (answer.status, answer.body) == (403, b'{"message":"FORBIDDEN"}'), who
            assert pair.ask("GET", "/api/topics/guarded", None, who).ours.status == 200
        pause, bob = b'{"action":"pause"}', {"X-Who": "bob"}
        assert all(map(is_well, pair.ask("POST", "/api/topics/guarded/c", pause, bob)))
        assert states(cluster, "guarded", "c") == [(True, 0)] * 3
