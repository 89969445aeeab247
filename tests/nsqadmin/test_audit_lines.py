"""Whatever somebody does is one line of the audit, with what each node said, in the order in which it was done."""

import json
from urllib.parse import quote

import pytest

from support.access import cookie_header, log_in, write_users
from support.admin import LiveCluster, text_of, told, wait_until
from support.admin_actions import Acting
from support.json_lines import read_json_lines
from support.server import Server
from support.web import request

pytestmark = [pytest.mark.go, pytest.mark.slow]

FLAGS = ("--poll-interval=300ms", "--problem-no-consumers=0s")
PASSWORD = "right"


class Audited:
    """An nsqadmin to which ana is logged in. Each thing that she does leaves one line, which is given."""

    def __init__(self, admin: Server, path):
        self._path = path
        self._count = 0
        self._admin = admin
        answer = log_in(admin.http, "ana", PASSWORD)
        self._session = cookie_header(answer)
        self.login = self._take_line()
        page = request(admin.http, "GET", "/topics", None, self._session).body.decode()
        token = page.split('name="csrf-token" content="', 1)[1].split('"', 1)[0]
        self.headers = self._session | {"X-CSRF-Token": token}
        self.acting = Acting(admin, self.headers)

    def lines(self):
        return read_json_lines(self._path)

    def _take_line(self, count=1):
        self._count += count
        wait_until(lambda: len(self.lines()) >= self._count, f"line {self._count} of the audit")
        found = self.lines()
        assert len(found) == self._count, found[self._count - 1 :]
        return found[-1]

    def ask(self, method, target, body=None, status=200, kind="application/json", lines=1):
        """The answer, and its last line."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = self.headers | {"Content-Type": kind}
        answer = request(self._admin.http, method, target, data, headers)
        assert answer.status == status, (target, answer)
        return answer, self._take_line(lines)

    def act(self, action, topic, channel="", **more):
        """By the dialogs of the pages."""
        order = {"action": action, "topic": topic, "channel": channel, **more}
        return self.ask("POST", "/ui/actions", order)[1]

    def is_quiet(self):
        """Nothing was noted since the last line."""
        return len(self.lines()) == self._count


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("audited"), ("nsqfast", "go"), ("nsqfast",)) as made:
        yield made


@pytest.fixture
def audited(cluster, tmp_path):
    path = tmp_path / "audit"
    users = write_users(tmp_path / "users", ("ana", "admin", PASSWORD))
    flags = (f"--auth-file={users}", f"--audit-file={path}", *FLAGS)
    with cluster.admin("nsqfast", *flags) as admin:
        made = Audited(admin, path)
        made.acting.wait_for_cluster(2)
        yield made


def keys(cluster):
    return {text_of(node.http) for node in cluster.nsqds}


def nodes_of(line):
    return {result["node"] for result in line["results"] if result["ok"]}


def test_each_action_of_the_pages(cluster, audited):
    both, lookupd = keys(cluster), {text_of(cluster.lookupds[0].http)}
    cluster.make("t", "c")
    audited.acting.wait_for_nodes("t", 2)
    topic, channel = {"topic": "t"}, {"topic": "t", "channel": "c"}
    for action, target in (
        ("pause", channel),
        ("unpause", channel),
        ("empty", channel),
        ("pause", topic),
        ("unpause", topic),
        ("empty", topic),
    ):
        line = audited.act(action, **target, confirm="/".join(target.values()))
        kind = "channel" if target is channel else "topic"
        assert (line["action"], line["target"]) == (f"{action}_{kind}", target)
        assert (line["user"], line["role"], line["outcome"]) == ("ana", "admin", "ok")
        assert nodes_of(line) == both
    line = audited.act("create", "new", "d", nodes=sorted(both))
    assert (line["action"], nodes_of(line)) == ("create_channel", both | lookupd)
    line = audited.act("create", "new")
    assert (line["action"], nodes_of(line)) == ("create_topic", lookupd)
    audited.acting.wait_for_nodes("new", 2)
    line = audited.act("delete", "new", "d", confirm="new/d")
    assert (line["action"], nodes_of(line)) == ("delete_channel", both | lookupd)
    node = text_of(cluster.nsqds[0].http)
    line = audited.act("tombstone", "new", nodes=[node])
    assert (line["action"], line["target"]) == (
        "tombstone_topic_producer",
        {"topic": "new", "node": node},
    )
    assert nodes_of(line) == {node} | lookupd
    line = audited.act("delete", "new", confirm="new")
    assert (line["action"], line["outcome"]) == ("delete_topic", "ok")
    assert nodes_of(line) >= lookupd | {text_of(cluster.nsqds[1].http)}
    assert audited.is_quiet()


def test_each_of_a_set_and_its_undo(cluster, audited):
    names = ["set-a", "set-b", "set-c"]
    for name in names:
        cluster.make(name, "c")
        audited.acting.wait_for_nodes(name, 2)
    items = [{"topic": name} for name in names]
    effect = audited.acting.effect("pause", items=items)
    assert audited.is_quiet()  # to look is not to do
    status, job = audited.acting.act("pause", items=items, hash=effect["hash"])
    assert status == 202
    audited.acting.end_of(job)
    assert audited.acting.ask("POST", f"/ui/actions/{job['id']}/undo", {})[0] == 202

    def is_undone():
        return len(audited.lines()) == 7

    wait_until(is_undone, "a line for each")
    noted = [(line["action"], line["target"]["topic"]) for line in audited.lines()[1:]]
    assert sorted(noted[:3]) == [("pause_topic", name) for name in names]
    assert sorted(noted[3:]) == [("unpause_topic", name) for name in names]
    assert all(nodes_of(line) == keys(cluster) for line in audited.lines()[1:])


def test_each_action_of_the_api(cluster, audited):
    both = keys(cluster)
    cluster.make("by-api", "c")
    for path, kind in (("/api/topics/by-api/c", "channel"), ("/api/topics/by-api", "topic")):
        for action in ("pause", "unpause", "empty"):
            _, line = audited.ask("POST", path, {"action": action})
            assert (line["action"], line["outcome"]) == (f"{action}_{kind}", "ok")
            assert nodes_of(line) == both
    _, line = audited.ask("POST", "/api/topics", {"topic": "by-api"})
    assert line["action"] == "create_topic"
    assert nodes_of(line) >= {text_of(cluster.lookupds[0].http)}
    # It makes the topic as well: two things, as nsqadmin's webhook tells of them.
    _, line = audited.ask("POST", "/api/topics", {"topic": "by-api", "channel": "d"}, lines=2)
    assert line["action"] == "create_channel"
    node = text_of(cluster.nsqds[0].http)
    _, line = audited.ask("DELETE", f"/api/nodes/{node}", {"topic": "by-api"})
    assert (line["action"], line["target"]["node"]) == ("tombstone_topic_producer", node)
    for path, action in (
        ("/api/topics/by-api/c", "delete_channel"),
        ("/api/topics/by-api", "delete_topic"),
    ):
        _, line = audited.ask("DELETE", path)
        assert line["action"] == action
        assert line["results"]
    _, line = audited.ask("PUT", "/config/log_level", b"info")
    assert (line["action"], line["effect"]) == (
        "set_config",
        {"name": "log_level", "value": "info"},
    )
    assert audited.is_quiet()


def test_looks_messages_exports_mutes_and_logins(cluster, audited):
    both, node = keys(cluster), text_of(cluster.nsqds[0].http)
    assert (audited.login["action"], audited.login["user"]) == ("login", "ana")
    cluster.make("seen", "c")
    audited.acting.wait_for_nodes("seen", 2)
    _, line = audited.ask("POST", "/ui/publish", {"topic": "seen", "body": "x", "node": node})
    assert (line["action"], nodes_of(line)) == ("publish", {node})
    for path in (
        "/topics/seen/c/messages",
        "/topics/seen/c/deferred",
        "/messages?topic=seen",
        "/ui/messages?topic=seen&channel=c",
    ):
        _, line = audited.ask("GET", path)
        assert (line["action"], line["target"]["topic"], line["outcome"]) == ("peek", "seen", "ok")
        assert nodes_of(line) == both
    told(cluster.nsqds[0], "/pub?topic=seen&defer=600000", b"later")
    answer, _ = audited.ask("GET", "/ui/messages?topic=seen&channel=c&state=deferred")
    (message,) = [m for each in answer.json()["nodes"] for m in each["messages"]]
    change = {"topic": "seen", "channel": "c", "node": node, "id": message["id"]}
    _, line = audited.ask("POST", "/ui/deferred", {**change, "action": "cancel"})
    assert (line["action"], nodes_of(line)) == ("cancel_deferred", {node})
    _, line = audited.ask("POST", "/ui/deferred", {**change, "action": "run"}, 502)
    assert (line["action"], line["outcome"], nodes_of(line)) == ("run_deferred", "failed", set())
    assert line["results"][0]["text"] == "it is not deferred any more"
    for target, what in (
        (f"/ui/export?view={quote('/topics?q=seen', safe='')}&table=topics&format=csv", "view"),
        ("/ui/series?key=topic/seen&columns=in_s&format=json", "series"),
    ):
        _, line = audited.ask("GET", target)
        assert (line["action"], line["outcome"]) == ("export", "ok")
        assert "seen" in line["target"][what]
    mute(audited)
    _, line = audited.ask("POST", "/logout", b"", 303, "application/x-www-form-urlencoded")
    assert (line["action"], line["user"], line["outcome"]) == ("logout", "ana", "ok")
    assert audited.is_quiet()


def mute(audited):
    """The channel that has a message and no consumer is a problem."""
    found = []

    def is_told():
        status, answer = audited.acting.ask("GET", "/ui/problems")
        assert status == 200
        found[:] = [p for p in answer["problems"] if p["rule"] == "no_consumers"]
        return found

    wait_until(is_told, "a problem")
    for way in ("mute", "unmute"):
        _, line = audited.ask("POST", f"/ui/problems/{way}", {"id": found[0]["id"]})
        assert (line["action"], line["outcome"]) == (f"{way}_problem", "ok")
        assert line["target"]["topic"] == found[0]["topic"]


def test_a_tail_is_a_line_and_so_is_one_that_cannot_be(cluster, audited):
    cluster.make("tailed", "c")
    cluster.make("bare")
    audited.acting.wait_for_nodes("bare", 2)
    _, line = audited.ask("POST", "/ui/tail", {"topic": "bare"}, 409)
    assert (line["action"], line["outcome"], len(line["results"])) == ("tail", "failed", 2)
