"""Messages that wait, as nsqadmin shows them: nothing in the cluster changes, nobody sees what they may not see."""

import base64
import contextlib
import html
import http.client
import json
import re
from urllib.parse import urlencode

import pytest

from nsqfast.client.sync import Config, Consumer
from support.admin import LiveCluster, told, wait_for_channel, wait_until
from support.json_lines import read_json_lines
from support.server import go_folder
from support.web import get, post, request, topic_stats

pytestmark = pytest.mark.skipif(go_folder() is None, reason="no NSQ programs written in Go")

MARKUP = b'<img src=x onerror=alert(1)>"><script>alert(1)</script>'
BODIES = {
    "json": b'{"order": 7, "customer": {"name": "Ann", "password": "secret"}}',
    "text": b"\n two\r\nlines",
    "binary": bytes(range(256)),
    "zero": b"a\0b",
    "markup": MARKUP,
    "large": b"x" * (1 << 20),
}
JSON_TYPE = {"Content-Type": "application/json"}
VIEWER = {"X-Forwarded-User": "bob"}
ADMIN = {"X-Forwarded-User": "ann"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two nsqd of ours and one of Go's. Each test has a topic of its own."""
    flags = ("--max-msg-size=1048576",)
    folder = tmp_path_factory.mktemp("messages")
    with LiveCluster(folder, ("nsqfast", "nsqfast", "go"), ("nsqfast",), *flags) as made:
        yield made


@pytest.fixture(scope="module")
def audit_path(tmp_path_factory):
    return tmp_path_factory.mktemp("audit") / "audit.json"


@pytest.fixture(scope="module")
def admin(cluster, audit_path):
    with cluster.admin("nsqfast", f"--audit-file={audit_path}") as server:
        yield server


@pytest.fixture(scope="module")
def guarded(cluster):
    """bob is a viewer, and passwords are hidden."""
    with cluster.admin("nsqfast", "--admin-user=ann", "--mask-json=Password") as server:
        yield server


@pytest.fixture(scope="module")
def open_bodies(cluster):
    """The same, but viewers see bodies."""
    flags = ("--admin-user=ann", "--mask-json=Password", "--viewer-sees-bodies")
    with cluster.admin("nsqfast", *flags) as server:
        yield server


def publish(cluster, topic, bodies, on=0, **more):
    query = urlencode({"topic": topic, **more})
    for body in bodies:
        told(cluster.nsqds[on], f"/pub?{query}", body)


def key_of(node):
    return "{}:{}".format(*node.http)


def look(server, topic, channel="c", headers=None, **more):
    query = urlencode({"topic": topic, "channel": channel, **more})
    answer = request(server.http, "GET", f"/ui/messages?{query}", None, headers)
    assert answer.status == 200, answer
    return {node["node"]: node for node in answer.json()["nodes"]}


def page_of(server, path, headers=None):
    answer = request(server.http, "GET", path, None, {"Accept": "text/html", **(headers or {})})
    assert answer.status == 200, answer
    return answer.body.decode()


def counts_of(cluster, topic):
    return [topic_stats(node.http, topic) for node in cluster.nsqds]


def payloads(page):
    """Bodies in a page, as a browser has them."""
    found = re.findall(r"<pre [^>]*data-payload[^>]*>\n(.*?)</pre>", page, re.DOTALL)
    return [html.unescape(each) for each in found]


def test_a_look_changes_nothing_and_shows_what_a_consumer_then_gets(cluster, admin):
    topic = "unchanged"
    cluster.make(topic, "c")
    publish(cluster, topic, [b"first %d" % number for number in range(30)])
    publish(cluster, topic, [b"later"], defer=600_000)
    wait_for_channel(admin, topic, "c")
    first = key_of(cluster.nsqds[0])

    def has_all():
        channel = topic_stats(cluster.nsqds[0].http, topic)["channels"]["c"]
        return (channel["depth"], channel["deferred_count"]) == (30, 1)

    wait_until(has_all, "the channel has all messages")
    before = counts_of(cluster, topic)
    seen = []
    for _ in range(3):
        seen += [
            look(admin, topic, state=state)[first]["messages"]
            for state in ("ready", "in_flight", "deferred")
        ]
        for view in ("json", "text", "hex"):
            page_of(admin, f"/topics/{topic}/c/messages?view={view}&filter=first")
        page_of(admin, f"/topics/{topic}/c/deferred")
    assert counts_of(cluster, topic) == before
    ready, in_flight, deferred = seen[:3]
    assert len(ready) == 20
    assert in_flight == []
    assert len(deferred) == 1
    ids = [message["id"] for message in ready]
    assert [message["id"] for message in seen[6]] == ids
    assert {message["attempts"] for message in ready} == {0}
    address = "{}:{}".format(*cluster.nsqds[0].tcp)
    with Consumer(topic, "c", nsqd=address, config=Config(max_in_flight=20)) as consumer:
        got = [consumer.get(timeout_s=10) for _ in range(20)]
        assert [message.id.decode() for message in got] == ids
        assert {message.attempts for message in got} == {1}


def test_bodies_of_every_kind_come_as_they_are(cluster, admin):
    topic = "bodies"
    cluster.make(topic, "c")
    publish(cluster, topic, BODIES.values())
    wait_for_channel(admin, topic, "c")
    messages = look(admin, topic)[key_of(cluster.nsqds[0])]["messages"]
    found = dict(zip(BODIES, messages, strict=True))
    for name, message in found.items():
        assert message["size"] == len(BODIES[name])
        body = message["body"]
        assert body["kind"] == ("binary" if name in ("binary", "zero") else "text")
        shown = (
            base64.b64decode(body["body"]) if body["kind"] == "binary" else body["body"].encode()
        )
        assert shown == BODIES[name][:65536]
        assert body["is_truncated"] == (name == "large")


def test_page_has_every_body_as_text_without_scripts(cluster, admin):
    topic = "pages"
    cluster.make(topic, "c")
    publish(cluster, topic, BODIES.values())
    wait_for_channel(admin, topic, "c")
    page = page_of(admin, f"/topics/{topic}/c/messages?view=text")
    assert MARKUP.decode() not in page
    shown = dict(zip(BODIES, payloads(page), strict=True))
    for name in ("json", "text", "markup"):
        assert shown[name].encode() == BODIES[name]
    assert shown["zero"] == f"00000000  {'61 00 62':<47}  |a.b|"
    assert "Binary, so it is shown in hex." in page
    assert "The first 64 KiB of 1 MiB." in page
    dumps = payloads(page_of(admin, f"/topics/{topic}/c/messages?view=hex"))
    rows = dumps[list(BODIES).index("binary")].split("\n")
    assert bytes.fromhex("".join(row[10:57] for row in rows)) == BODIES["binary"]


def test_go_node_is_explained_and_is_no_error(cluster, admin, audit_path):
    topic = "explained"
    cluster.make(topic, "c")
    publish(cluster, topic, [b"x"], on=2)
    wait_for_channel(admin, topic, "c")
    node = look(admin, topic)[key_of(cluster.nsqds[2])]
    assert node["messages"] == []
    assert not node["is_failed"]
    assert re.fullmatch(
        r"nsqd 1\.3\.0 on \S+ cannot show waiting messages; tail new ones instead\.",
        node["sentence"],
    )
    assert node["sentence"] in page_of(admin, f"/topics/{topic}/c/messages")
    assert "cannot show deferred messages" in page_of(admin, f"/topics/{topic}/c/deferred")
    noted = entries(audit_path, topic, "peek")
    assert {entry["outcome"] for entry in noted} == {"ok"}
    assert len(noted[-1]["results"]) == 3


def entries(path, topic, action, count=1):
    """Lines of the audit, which are written a little later."""

    def found():
        every = read_json_lines(path) if path.exists() else []
        return [e for e in every if e["action"] == action and e["target"].get("topic") == topic]

    wait_until(lambda: len(found()) >= count, f"{action} of {topic} is audited")
    return found()


def test_limits_offsets_and_nodes(cluster, admin):
    topic = "limits"
    cluster.make(topic, "c")
    publish(cluster, topic, [b"m%03d" % number for number in range(120)])
    wait_for_channel(admin, topic, "c")
    first = key_of(cluster.nsqds[0])

    def bodies(**more):
        return [each["body"]["body"] for each in look(admin, topic, **more)[first]["messages"]]

    assert bodies(limit=1000) == [f"m{number:03}" for number in range(100)]
    assert bodies(limit=5, offset=118) == ["m118", "m119"]
    assert len(bodies(limit="x", offset=-4, state="no")) == 20
    assert list(look(admin, topic, node=first)) == [first]
    assert look(admin, topic, node="127.0.0.1:1") == {}
    assert bodies(filter="m11", limit=3) == ["m110", "m111", "m112"]
    found = look(admin, topic, filter="m119")[first]
    assert (found["scanned"], found["depth"], found["is_complete"]) == (120, 120, True)
    page = page_of(admin, f"/topics/{topic}/c/messages?filter=m119")
    assert "1 match, scanned 120 of 120" in page
    assert "1 to 20 of 120" in page_of(admin, f"/topics/{topic}/c/messages")


def test_what_waits_in_a_topic_itself(cluster, admin):
    topic = "bare"
    cluster.make(topic)
    publish(cluster, topic, [b"nobody's"])
    wait_for_channel(admin, topic, "")
    assert (
        look(admin, topic, "")[key_of(cluster.nsqds[0])]["messages"][0]["body"]["body"]
        == "nobody's"
    )
    assert payloads(page_of(admin, f"/messages?topic={topic}")) == ["nobody's"]


@pytest.mark.parametrize(
    "path", ["/topics/no/c/messages", "/topics/limits/no/deferred", "/messages?topic=no"]
)
def test_unknown_names_are_a_page_404(cluster, admin, path):
    cluster.make("limits", "c")
    answer = request(admin.http, "GET", path, None, {"Accept": "text/html"})
    assert answer.status == 404
    assert b"The cluster has no" in answer.body


def test_node_that_is_down_or_frozen_is_named_and_the_others_are_shown(tmp_path):
    flags = ("--http-client-request-timeout=1s", "--http-client-connect-timeout=1s")
    with LiveCluster(tmp_path, ("nsqfast", "nsqfast"), ("nsqfast",)) as cluster:
        topic = "partly"
        cluster.make(topic, "c")
        for number in (0, 1):
            publish(cluster, topic, [b"here"], on=number)
        with cluster.admin("nsqfast", *flags) as admin:
            wait_for_channel(admin, topic, "c", 2)
            up, other = map(key_of, cluster.nsqds)
            with cluster.nsqds[1].frozen():
                found = look(admin, topic)
                assert (
                    "no answer in time" in found[other]["sentence"]
                    or "Timeout" in found[other]["sentence"]
                )
                assert found[other]["is_failed"]
                assert found[up]["messages"][0]["body"]["body"] == "here"
            cluster.nsqds[1].kill()
            page = page_of(admin, f"/topics/{topic}/c/messages")
            assert f"{other} did not answer" in page
            assert payloads(page) == ["here"]


# -- who sees what


def test_viewer_sees_no_bodies_and_cannot_search_them(cluster, guarded):
    topic = "roles"
    cluster.make(topic, "c")
    publish(cluster, topic, [b"hush"])
    wait_for_channel(guarded, topic, "c")
    first = key_of(cluster.nsqds[0])
    message = look(guarded, topic, headers=VIEWER)[first]["messages"][0]
    assert message["body"]["kind"] == "hidden"
    assert message["body"]["body"] == ""
    assert message["size"] == 4
    # A search would tell what bodies hold.
    assert len(look(guarded, topic, headers=VIEWER, filter="other")[first]["messages"]) == 1
    page = page_of(guarded, f"/topics/{topic}/c/messages?filter=hush", VIEWER)
    assert ">hush" not in page
    assert "Text in the body" not in page
    assert "Start the tail" not in page
    assert payloads(page_of(guarded, f"/topics/{topic}/c/messages", ADMIN)) == ["hush"]


@pytest.mark.parametrize("path", ["/ui/tail", "/ui/deferred"])
def test_viewer_may_change_nothing(cluster, guarded, path):
    body = {"topic": "roles", "channel": "c", "node": "x", "id": "0" * 16, "action": "run"}
    answer = request(guarded.http, "POST", path, json.dumps(body).encode(), {**JSON_TYPE, **VIEWER})
    assert (answer.status, answer.json()) == (403, {"message": "FORBIDDEN"})
    wait_until(lambda: f"POST {path}" in page_of(guarded, "/audit", ADMIN), "it is audited")


def test_masks_hold_in_every_view_and_for_everybody(cluster, open_bodies):
    topic = "masks"
    secret = "geh3im"
    cluster.make(topic, "c")
    hidden = [
        json.dumps({"password": secret}),
        json.dumps([{"a": [{"PassWord": {"deep": secret}}]}]),
        json.dumps({"inner": json.dumps({"password": secret})}),
        f'{{"password": "{secret}", "password": "{secret}"}}',
        f'password="{secret}"',
        f'{{"password": "{secret}", "x": "{"y" * 70_000}"}}',
    ]
    shown = ['{"number": 1.50, "other": "kept"}', "plain words"]
    publish(cluster, topic, [body.encode() for body in hidden + shown])
    wait_for_channel(open_bodies, topic, "c")
    first = key_of(cluster.nsqds[0])
    for headers in (ADMIN, VIEWER):
        for view in ("json", "text", "hex"):
            page = page_of(open_bodies, f"/topics/{topic}/c/messages?view={view}", headers)
            assert secret not in page
            assert secret.encode().hex(" ") not in page
            assert "Values are hidden by --mask-json." in page
        found = look(open_bodies, topic, headers=headers)[first]["messages"]
        assert secret not in json.dumps(found)
        bodies = [message["body"] for message in found]
        assert bodies[0] == {
            "kind": "text",
            "body": '{"password": "***"}',
            "reason": "",
            "is_masked": True,
            "is_truncated": False,
        }
        assert bodies[6]["body"] == shown[0]
        assert not bodies[6]["is_masked"]
    # What is no JSON could hold anything.
    assert found[7]["body"]["kind"] == "hidden"
    assert "is no JSON" in found[7]["body"]["reason"]
    assert (
        look(open_bodies, topic, headers=ADMIN)[first]["messages"][7]["body"]["body"]
        == "plain words"
    )
    # A viewer who may search could find out what is hidden, letter by letter.
    assert len(look(open_bodies, topic, headers=VIEWER, filter=secret)[first]["messages"]) == 8
    assert "while --mask-json hides" in page_of(open_bodies, f"/topics/{topic}/c/messages", VIEWER)


# -- deferred messages


def change(server, headers=None, **body):
    given = {**JSON_TYPE, **(headers or {})}
    return request(server.http, "POST", "/ui/deferred", json.dumps(body).encode(), given)


def test_deferred_message_is_run_or_cancelled(cluster, admin, audit_path):
    topic = "deferred"
    cluster.make(topic, "c")
    publish(cluster, topic, [b"one", b"two"], defer=600_000)
    wait_for_channel(admin, topic, "c")
    node = key_of(cluster.nsqds[0])
    page = page_of(admin, f"/topics/{topic}/c/deferred")
    assert re.search(r">in 9 min<|>in 10 min<", page)
    messages = look(admin, topic, state="deferred")[node]["messages"]
    ids = {message["body"]["body"]: message["id"] for message in messages}
    given = {"topic": topic, "channel": "c", "node": node}
    answer = change(admin, **given, id=ids["one"], action="run")
    assert (answer.status, answer.json()) == (
        200,
        {"results": [{"node": node, "ok": True, "text": ""}]},
    )
    wait_until(
        lambda: [m["id"] for m in look(admin, topic)[node]["messages"]] == [ids["one"]],
        "the message is ready",
    )
    assert change(admin, **given, id=ids["two"], action="cancel").status == 200
    channel = topic_stats(cluster.nsqds[0].http, topic)["channels"]["c"]
    assert (channel["depth"], channel["deferred_count"]) == (1, 0)
    again = change(admin, **given, id=ids["two"], action="run")
    assert again.status == 502
    assert again.json()["message"] == "it is not deferred any more"
    noted = entries(audit_path, topic, "run_deferred", 2)
    assert [entry["outcome"] for entry in noted] == ["ok", "failed"]
    noted = entries(audit_path, topic, "cancel_deferred")
    assert noted[0]["effect"] == {"id": ids["two"]}
    assert noted[0]["target"]["node"] == node


def test_deferred_change_that_cannot_be(cluster, admin):
    topic = "deferred"
    cluster.make(topic, "c")
    wait_for_channel(admin, topic, "c")
    given = {"topic": topic, "channel": "c", "node": key_of(cluster.nsqds[2]), "id": "0" * 16}
    answer = change(admin, **given, action="run")
    assert answer.status == 502
    assert answer.json()["message"].endswith("cannot do this")
    assert change(admin, **{**given, "node": "127.0.0.1:1"}, action="run").status == 404
    assert change(admin, **{**given, "id": "../x"}, action="run").status == 400
    assert change(admin, **given, action="burn").status == 400
    assert change(admin, action="run").status == 400
    foreign = change(admin, {"Sec-Fetch-Site": "cross-site"}, **given, action="run")
    assert foreign.status == 403


# -- the tail


class Tail:
    """One open tail; events come with `next`."""

    def __init__(self, server, topic, headers=None):
        self.connection = http.client.HTTPConnection(*server.http, timeout=15)
        body = json.dumps({"topic": topic}).encode()
        self.connection.request("POST", "/ui/tail", body, {**JSON_TYPE, **(headers or {})})
        self.answer = self.connection.getresponse()

    def next(self):
        name = self.answer.readline().decode().removeprefix("event: ").strip()
        data = self.answer.readline().decode().removeprefix("data: ")
        assert self.answer.readline() == b"\n"
        return name, json.loads(data)

    def until(self, wanted):
        """The first event of which `wanted(name, data)` is true."""
        while True:
            name, data = self.next()
            if wanted(name, data):
                return data

    def close(self):
        self.answer.close()
        self.connection.close()


@contextlib.contextmanager
def tailing(server, topic, headers=None):
    tail = Tail(server, topic, headers)
    try:
        yield tail
    finally:
        tail.close()


def channels_of(cluster, topic):
    return [sorted(topic_stats(node.http, topic)["channels"]) for node in cluster.nsqds]


def test_tail_shows_new_messages_of_all_nodes_and_its_channel_goes_with_it(
    cluster, admin, audit_path
):
    topic = "tailed"
    cluster.make(topic, "c")
    publish(cluster, topic, [b"old"])
    wait_for_channel(admin, topic, "c")
    with tailing(admin, topic) as tail:
        assert tail.answer.status == 200
        assert tail.answer.getheader("Content-Type").startswith("text/event-stream")
        status = tail.until(lambda name, data: name == "status" and data["nodes"] == 3)
        assert re.fullmatch(r"nsqadmin-[0-9a-f]{12}#ephemeral", status["channel"])
        assert status["silent"] == []
        assert channels_of(cluster, topic) == [["c", status["channel"]]] * 3
        for number in range(3):
            publish(cluster, topic, [b"new \xff %d" % number], on=number)
        found = [tail.until(lambda name, _: name == "message") for _ in range(3)]
        bodies = {bytes.fromhex(message["text"][10:57]) for message in found}
        assert bodies == {b"new \xff %d" % number for number in range(3)}
        assert len({message["node"] for message in found}) == 3
    wait_until(lambda: channels_of(cluster, topic) == [["c"]] * 3, "the tail's channel is gone")
    depths = [stats["channels"]["c"]["depth"] for stats in counts_of(cluster, topic)]
    assert depths == [2, 1, 1]
    noted = entries(audit_path, topic, "tail")
    assert noted[0]["outcome"] == "ok"
    assert noted[0]["effect"] == {"makes": status["channel"]}


def test_tail_takes_nothing_from_a_topic_without_channels(cluster, admin):
    topic = "kept"
    cluster.make(topic)
    publish(cluster, topic, [b"for the first that comes"])
    wait_for_channel(admin, topic, "")
    answer = request(
        admin.http, "POST", "/ui/tail", json.dumps({"topic": topic}).encode(), JSON_TYPE
    )
    assert answer.status == 409
    assert "has no channel there" in answer.json()["message"]
    assert topic_stats(cluster.nsqds[0].http, topic)["depth"] == 1
    assert channels_of(cluster, topic) == [[], [], []]
    # Another node has a channel: that one can be tailed.
    told(cluster.nsqds[1], f"/channel/create?topic={topic}&channel=c")
    with tailing(admin, topic) as tail:
        status = tail.until(lambda name, _: name == "status")
        assert status["nodes"] == 1
        assert "has no channel there" in status["silent"][0]
        assert [len(names) for names in channels_of(cluster, topic)] == [0, 2, 0]


def test_tail_drops_what_is_too_fast_and_says_how_much(cluster, admin):
    topic = "fast"
    cluster.make(topic, "c")
    wait_for_channel(admin, topic, "c")
    with tailing(admin, topic) as tail:
        tail.until(lambda name, data: name == "status" and data["nodes"] == 3)
        cluster.publish(topic, 1000)
        shown = 0

        def is_over(name, data):
            nonlocal shown
            shown += name == "message"
            return name == "status" and data["shown"] + data["dropped"] == 1000

        status = tail.until(is_over)
        assert status["shown"] == shown
        # All came within a second or two.
        assert 100 <= shown < 500


def test_tails_are_few_and_end_when_nsqadmin_stops(cluster):
    topic = "few"
    cluster.make(topic, "c")
    with contextlib.ExitStack() as stack:
        with cluster.admin("nsqfast", "--mask-json=password") as admin:
            wait_for_channel(admin, topic, "c")
            tails = [stack.enter_context(tailing(admin, topic)) for _ in range(4)]
            assert [tail.answer.status for tail in tails] == [200] * 4
            with tailing(admin, topic) as fifth:
                assert fifth.answer.status == 429
            tails[0].until(lambda name, data: name == "status" and data["nodes"] == 3)
            publish(cluster, topic, [b'{"password": "geh3im"}', b"y" * 10_000])
            message = tails[0].until(lambda name, _: name == "message")
            assert (message["text"], message["is_masked"]) == ('{"password": "***"}', True)
            cut = tails[0].until(lambda name, _: name == "message")
            assert (cut["size"], len(cut["text"]), cut["is_truncated"]) == (10_000, 4096, True)
        assert all(tail.answer.read() is not None for tail in tails)
    wait_until(lambda: channels_of(cluster, topic) == [["c"]] * 3, "no channel is left")


def test_tail_of_another_site_or_of_nothing_is_refused(cluster, admin):
    topic = "foreign"
    cluster.make(topic, "c")
    wait_for_channel(admin, topic, "c")
    with tailing(admin, topic, {"Origin": "http://evil.example"}) as tail:
        assert tail.answer.status == 403
    with tailing(admin, "no-such-topic") as tail:
        assert tail.answer.status == 404
    assert get(admin.http, "/ui/tail").status == 405
    assert post(admin.http, "/ui/tail", b"").status == 400
    assert channels_of(cluster, topic) == [["c"]] * 3
