"""Messages that wait, as nsqadmin shows them: nothing in the cluster changes, nobody sees what they may not see."""

import asyncio
import base64
import contextlib
import datetime as dt
import html
import http.client
import json
import re
import socket
import time
from urllib.parse import urlencode, urlsplit

import pytest

from nsqfast.client.sync import Config, Consumer
from nsqfast.nsqadmin.messages.tail import WANTED
from support.admin import LiveCluster, start_nsqadmin, text_of, told, wait_for_channel
from support.admin_pages import example_pages
from support.authd import AuthServer
from support.certificates import Certificates
from support.json_lines import wait_for_entries
from support.server import go_folder, start_nsqd
from support.still_nodes import StillNodes
from support.waiting import wait_until
from support.web import get, request, topic_stats

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
REASONS = (
    f"{WANTED['TLS required']} (E_INVALID cannot SUB in current state (TLS required))",
    f"{WANTED['E_AUTH_FIRST']} (E_AUTH_FIRST nsqd wants an auth_secret)",
)
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


@pytest.fixture
def guarded(cluster, request):
    """bob is a viewer, and passwords are hidden; the parameter is one more flag."""
    flags = ("--admin-user=ann", "--mask-json=Password", *request.param)
    with cluster.admin("nsqfast", *flags) as server:
        yield server


def fill(cluster, server, topic, bodies=(), **more):
    """A topic and a channel with these messages at the first nsqd, known to `server`; that nsqd."""
    cluster.make(topic, "c")
    publish(cluster, topic, bodies, **more)
    wait_for_channel(server, topic, "c")
    return text_of(cluster.nsqds[0].http)


def publish(cluster, topic, bodies, on=0, **more):
    query = urlencode({"topic": topic, **more})
    for body in bodies:
        told(cluster.nsqds[on], f"/pub?{query}", body)


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
    """All but ages, which differ from moment to moment."""
    found = [topic_stats(node.http, topic) for node in cluster.nsqds]
    for one in found:
        for queue in (one, *one["channels"].values()) if one else ():
            queue.pop("oldest_message_age_ms", None)
    return found


def payloads(page):
    """Bodies in a page, as a browser has them."""
    found = re.findall(r"<pre [^>]*data-payload[^>]*>\n(.*?)</pre>", page, re.DOTALL)
    return [html.unescape(each) for each in found]


def test_a_look_changes_nothing_and_shows_what_a_consumer_then_gets(cluster, admin):
    topic = "unchanged"
    first = fill(cluster, admin, topic, [b"first %d" % number for number in range(30)])
    publish(cluster, topic, [b"later"], defer=600_000)

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
    address = text_of(cluster.nsqds[0].tcp)
    with Consumer(topic, "c", nsqd=address, config=Config(max_in_flight=20)) as consumer:
        got = [consumer.get(timeout_s=10) for _ in range(20)]
        assert [message.id.decode() for message in got] == ids
        assert {message.attempts for message in got} == {1}


def test_bodies_of_every_kind_come_as_they_are_and_are_text_in_the_page(cluster, admin):
    topic = "bodies"
    cluster.make(topic)
    publish(cluster, topic, [b"nobody's"])
    wait_for_channel(admin, topic, "")
    waits = look(admin, topic, "")[text_of(cluster.nsqds[0].http)]["messages"]
    assert [message["body"]["body"] for message in waits] == ["nobody's"]
    assert payloads(page_of(admin, f"/messages?topic={topic}")) == ["nobody's"]
    told(cluster.nsqds[0], f"/topic/empty?topic={topic}")
    first = fill(cluster, admin, topic, BODIES.values())
    messages = look(admin, topic)[first]["messages"]
    for (name, whole), message in zip(BODIES.items(), messages, strict=True):
        assert message["size"] == len(whole)
        body = message["body"]
        assert body["kind"] == ("binary" if name in ("binary", "zero") else "text")
        is_text = body["kind"] == "text"
        shown = body["body"].encode() if is_text else base64.b64decode(body["body"])
        assert shown == whole[:65536]
        assert body["is_truncated"] == (name == "large")
    page = page_of(admin, f"/topics/{topic}/c/messages?view=text")
    assert MARKUP.decode() not in page
    shown = dict(zip(BODIES, payloads(page), strict=True))
    for name in ("json", "text", "markup"):
        assert shown[name].encode() == BODIES[name]
    assert shown["zero"] == f"00000000  {'61 00 62':<47}  |a.b|"
    assert "The first 64 KiB of 1 MiB." in page
    dumps = payloads(page_of(admin, f"/topics/{topic}/c/messages?view=hex"))
    rows = dumps[list(BODIES).index("binary")].split("\n")
    assert bytes.fromhex("".join(row[10:57] for row in rows)) == BODIES["binary"]


def test_when_deferred_messages_are_due(cluster, admin):
    """Of all nodes together, and how many of these cannot say it."""
    topic = "calendar"
    fill(cluster, admin, topic, [b"soon"], defer=600_000)
    publish(cluster, topic, [b"soon", b"late"], on=1, defer=600_000)
    publish(cluster, topic, [b"in days"], on=1, defer=3_600_000)
    publish(cluster, topic, [b"of Go"], on=2, defer=3_500_000)

    def shown(by):
        page = page_of(admin, f"/topics/{topic}/c/deferred?by={by}")
        rows = re.findall(r'<th scope="row">.*?</th><td class="num">(\d+)</td></tr>', page)
        assert "2 of 3 nodes can say it" in page
        assert page.count("<rect") == len(rows)
        return [int(row) for row in rows]

    soon = shown("minutes")
    assert (soon[-1], sum(soon)) == (1, 4)
    assert sum(shown("hours")) == 4
    assert sum(shown("days")) == 4
    assert sum(shown("nonsense")) == 4


def test_go_node_is_explained_and_is_no_error(cluster, admin, audit_path):
    topic = "explained"
    fill(cluster, admin, topic, [b"x"], on=2)
    node = look(admin, topic)[text_of(cluster.nsqds[2].http)]
    assert node["messages"] == []
    assert not node["is_failed"]
    assert re.fullmatch(
        r"nsqd 1\.3\.0 on \S+ cannot show waiting messages; tail new ones instead\.",
        node["sentence"],
    )
    assert node["sentence"] in page_of(admin, f"/topics/{topic}/c/messages")
    assert "cannot show deferred messages" in page_of(admin, f"/topics/{topic}/c/deferred")
    noted = wait_for_entries(audit_path, "peek", topic)
    assert {entry["outcome"] for entry in noted} == {"ok"}
    assert len(noted[-1]["results"]) == 3


def test_limits_offsets_and_nodes(cluster, admin):
    topic = "limits"
    first = fill(cluster, admin, topic, [b"m%03d" % number for number in range(120)])

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
    for path in (
        f"/topics/{topic}/no/messages",
        f"/topics/{topic}/no/deferred",
        "/messages?topic=no",
    ):
        assert get(admin.http, path).status == 404


def test_from_a_time_on(cluster, admin, audit_path):
    topic = "times"
    first = fill(cluster, admin, topic, [b"old"])
    old_s = int(look(admin, topic)[first]["messages"][0]["time"])
    wait_until(lambda: time.time() >= old_s + 1, "another second")
    publish(cluster, topic, [b"young", b"bad"])
    for since in (
        dt.datetime.fromtimestamp(old_s + 1).isoformat(),  # noqa: DTZ006 - the server's zone
        dt.datetime.fromtimestamp(old_s + 1, dt.UTC).isoformat(),
    ):
        found = look(admin, topic, since=since)[first]
        assert [each["body"]["body"] for each in found["messages"]] == ["young", "bad"]
        page = page_of(admin, f"/topics/{topic}/c/messages?{urlencode({'since': since})}")
        assert "2 matches, scanned 3 of 3" in page
    for never in ("yesterday", "0001-01-01", "9999-12-31T23:59:59", "1969-01-01", "2" * 5000):
        assert len(look(admin, topic, since=never)[first]["messages"]) == 3
    given = {"topic": topic, "channel": "c", "state": "ready", "action": "drop", "filter": ""}
    long = since.replace("+", "." + "0" * 3000 + "+")  # is the same, and no line of the audit
    dropped = end(admin, **given, since=long, nodes=[{"node": first}])
    assert (dropped["changed"], dropped["outcome"]) == (2, "ok")
    assert [m["body"]["body"] for m in look(admin, topic)[first]["messages"]] == ["old"]
    assert wait_for_entries(audit_path, "drop_messages", topic)[0]["effect"]["since"] == since


# -- who sees what


@pytest.mark.parametrize("guarded", [()], indirect=True)
def test_viewer_sees_no_bodies_and_cannot_search_them(cluster, guarded):
    topic = "roles"
    first = fill(cluster, guarded, topic, [b"hush"])
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


@pytest.mark.parametrize("guarded", [("--viewer-sees-bodies",)], indirect=True)
def test_masks_hold_in_every_view_and_for_everybody(cluster, guarded):
    topic, secret = "masks", "geh3im"
    hidden = [
        json.dumps({"password": secret}),
        f'{{"password": "{secret}", "password": "{secret}"}}',
        f'password="{secret}"',
        f'{{"password": "{secret}", "x": "{"y" * 70_000}"}}',
    ]
    shown = ['{"number": 1.50, "other": "kept"}', "plain words"]
    first = fill(cluster, guarded, topic, [body.encode() for body in hidden + shown])
    for headers in (ADMIN, VIEWER):
        for view in ("json", "text", "hex"):
            page = page_of(guarded, f"/topics/{topic}/c/messages?view={view}", headers)
            assert secret not in page
            assert secret.encode().hex(" ") not in page
            assert "Values are hidden by --mask-json." in page
        found = look(guarded, topic, headers=headers)[first]["messages"]
        assert secret not in json.dumps(found)
        bodies = [message["body"] for message in found]
        assert bodies[0] == {
            "kind": "text",
            "body": '{"password": "***"}',
            "reason": "",
            "is_masked": True,
            "is_truncated": False,
        }
        assert (bodies[4]["body"], bodies[4]["is_masked"]) == (shown[0], False)
        # What is no JSON could hold anything, and a viewer may not see it.
        assert bodies[5]["body"] == ("plain words" if headers is ADMIN else "")
    # A viewer who may search could find out what is hidden, letter by letter.
    assert len(look(guarded, topic, headers=VIEWER, filter=secret)[first]["messages"]) == 6
    assert "while --mask-json hides" in page_of(guarded, f"/topics/{topic}/c/messages", VIEWER)


# -- changes


def change(server, headers=None, **body):
    given = {**JSON_TYPE, **(headers or {})}
    return request(server.http, "POST", "/ui/messages/changes", json.dumps(body).encode(), given)


def end(server, headers=None, **body):
    """Its state when it is over."""
    answer = change(server, headers, **body)
    assert answer.status == 202, answer
    path = f"/ui/messages/changes/{answer.json()['id']}"
    found = []

    def is_over():
        found.append(request(server.http, "GET", path, headers=headers or {}).json())
        return not found[-1]["is_running"]

    wait_until(is_over, "the change is over")
    return found[-1]


def ids_of(server, topic, node, state="ready"):
    messages = look(server, topic, state=state)[node]["messages"]
    return {message["body"]["body"]: message["id"] for message in messages}


def test_picked_messages_are_requeued_and_dropped(cluster, admin, audit_path):
    topic = "deferred"
    node = fill(cluster, admin, topic, [b"one", b"two"], defer=600_000)
    page = page_of(admin, f"/topics/{topic}/c/deferred")
    assert re.search(r">in 9 min<|>in 10 min<", page)
    ids = ids_of(admin, topic, node, "deferred")
    given = {"topic": topic, "channel": "c", "state": "deferred"}
    done = end(admin, **given, action="requeue", nodes=[{"node": node, "ids": [ids["one"]]}])
    assert done["results"] == [{"node": node, "ok": True, "text": ""}]
    assert (done["changed"], done["outcome"]) == (1, "ok")
    assert ids_of(admin, topic, node) == {"one": ids["one"]}
    picked = {"node": node, "ids": [ids["two"]]}
    assert end(admin, **given, action="drop", nodes=[picked])["outcome"] == "ok"
    channel = topic_stats(cluster.nsqds[0].http, topic)["channels"]["c"]
    assert (channel["depth"], channel["deferred_count"]) == (1, 0)
    again = end(admin, **given, action="requeue", nodes=[picked])
    assert again["outcome"] == "failed"
    assert again["results"][0]["text"] == "1 of them are not there any more"
    noted = wait_for_entries(audit_path, "requeue_messages", topic, 2)
    assert [entry["outcome"] for entry in noted] == ["ok", "failed"]
    noted = wait_for_entries(audit_path, "drop_messages", topic)
    assert noted[0]["effect"] == {
        "state": "deferred",
        "messages": 1,
        "picked": 1,
        "messages_lost": 1,
    }
    assert noted[0]["target"] == {"topic": topic, "channel": "c", "node": node}


def test_all_that_a_search_finds_goes_to_another_topic(cluster, admin, audit_path):
    topic, to = "sorted", "sorted.failed"
    fill(cluster, admin, topic, [b"good 1", b"bad 2"])
    publish(cluster, topic, [b"bad 3", b"good 4"], on=1)
    nodes = [{"node": text_of(node.http)} for node in cluster.nsqds[:2]]
    given = {"topic": topic, "channel": "c", "state": "ready", "filter": "bad", "nodes": nodes}
    copied = end(admin, **given, action="copy", to=to)
    assert (copied["changed"], copied["examined"], copied["outcome"]) == (2, 4, "ok")
    moved = end(admin, **given, action="move", to=to)
    assert (moved["changed"], moved["outcome"]) == (2, "ok")
    found = look(admin, topic)
    left = [m["body"]["body"] for node in nodes for m in found[node["node"]]["messages"]]
    assert left == ["good 1", "good 4"]
    depths = [topic_stats(node.http, to)["depth"] for node in cluster.nsqds[:2]]
    assert depths == [2, 2]
    [noted] = wait_for_entries(audit_path, "move_messages", topic)
    assert noted["effect"] == {
        "state": "ready",
        "messages": 2,
        "filter": "bad",
        "examined": 4,
        "to": to,
    }


def test_a_page_goes_on_at_a_place_and_its_messages_are_found_there(cluster, admin):
    topic = "far"
    node = fill(cluster, admin, topic)
    body = b"\n".join(b"%d" % number for number in range(20_050))
    assert request(cluster.nsqds[0].http, "POST", f"/mpub?topic={topic}", body).status == 200
    more = {"limit": 100, "node": node, "filter": "2"}
    offset, place = 0, ""
    while offset < 20_000:
        found = look(admin, topic, **more, **{"offset": offset, "from": place})[node]
        assert found["sentence"] == ""
        before, offset, place = place, found["offset"] + found["scanned"], found["next"] or ""
    last = found["messages"][-1]
    picked = {"node": node, "ids": [last["id"]], "place": before}
    given = {"topic": topic, "channel": "c", "state": "ready", "action": "drop"}
    assert end(admin, **given, nodes=[picked])["changed"] == 1
    page = page_of(admin, f"/topics/{topic}/c/messages?from={before}&offset=19900&node={node}")
    assert "19,901 to 19,920 of 20,049" in page
    worn = look(admin, topic, **{"from": "1-0-0-0-0-0123456789abcdef"})[node]
    assert (worn["is_failed"], "started anew" in worn["sentence"]) == (True, True)


def test_a_change_that_is_stopped(monkeypatch):
    """nsqd says again and again that there is more."""

    async def find_more(_nodes, _address, _path, _body=b""):
        await asyncio.sleep(0)
        return b'{"examined": 1, "changed": 1, "next": "1-2"}'

    monkeypatch.setattr(StillNodes, "post", find_more)
    with example_pages() as site:
        address = urlsplit(site.url).hostname, urlsplit(site.url).port
        given = {"topic": "orders", "channel": "billing", "state": "ready", "action": "drop"}
        given |= {"nodes": [{"node": "10.0.0.1:4151"}], "filter": ""}
        body = json.dumps(given).encode()
        answer = request(address, "POST", "/ui/messages/changes", body, JSON_TYPE)
        path = f"/ui/messages/changes/{answer.json()['id']}"
        wait_until(lambda: get(address, path).json()["changed"] > 3, "some parts are done")
        assert get(address, path).json()["is_running"]
        assert request(address, "POST", f"{path}/stop", b"{}", JSON_TYPE).json()["is_stopped"]
        wait_until(lambda: not get(address, path).json()["is_running"], "it is over")
        found = get(address, path).json()
        assert (found["outcome"], found["is_stopped"]) == ("ok", True)
        unknown = request(address, "POST", "/ui/messages/changes/x/stop", b"{}", JSON_TYPE)
        assert unknown.status == 404


def test_changes_that_cannot_be(cluster, admin):
    topic = "unchanged"
    node = fill(cluster, admin, topic, [b"one"])
    go = text_of(cluster.nsqds[2].http)
    given = {"topic": topic, "channel": "c", "state": "ready", "action": "drop"}
    picked = {"node": node, "ids": ["0" * 16]}
    told = end(admin, **given, nodes=[{**picked, "node": go}])
    assert told["outcome"] == "failed"
    assert told["results"][0]["text"].endswith("cannot do this")
    for wrong, status in (
        ({"nodes": [{**picked, "node": "127.0.0.1:1"}]}, 404),
        ({"nodes": [picked, picked]}, 404),
        ({"nodes": []}, 404),
        ({"nodes": [picked], "channel": "d"}, 404),
        ({"nodes": [{**picked, "ids": ["../x"]}]}, 400),
        ({"nodes": [{**picked, "ids": ["0" * 16] * 101}]}, 400),
        ({"nodes": [{**picked, "place": "1&to=x"}]}, 400),
        ({"nodes": [{"node": node}]}, 400),
        ({"nodes": [{"node": node}], "filter": "x" * 1025}, 400),
        ({"nodes": [{"node": node}], "filter": "", "since": "yesterday"}, 400),
        ({"nodes": [picked], "action": "burn"}, 400),
        ({"nodes": [picked], "action": "copy", "to": "a b"}, 400),
        ({"nodes": [picked], "to": "u"}, 400),
        ({}, 400),
    ):
        assert change(admin, **{**given, **wrong}).status == status, wrong
    foreign = change(admin, {"Sec-Fetch-Site": "cross-site"}, **given, nodes=[picked])
    assert foreign.status == 403


@pytest.mark.parametrize("guarded", [()], indirect=True)
def test_only_admins_change_messages(cluster, guarded):
    topic = "guarded-change"
    node = fill(cluster, guarded, topic, [b"one"])
    given = {"topic": topic, "channel": "c", "state": "ready", "action": "drop", "filter": ""}
    given["nodes"] = [{"node": node}]
    assert change(guarded, VIEWER, **given).status == 403
    assert "changes.js" not in page_of(guarded, f"/topics/{topic}/c/messages", VIEWER)
    assert end(guarded, ADMIN, **given)["changed"] == 1


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

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answer.close()
        self.connection.close()


def channels_of(cluster, topic):
    return [sorted(topic_stats(node.http, topic)["channels"]) for node in cluster.nsqds]


def test_tail_shows_new_messages_of_all_nodes_and_its_channel_goes_with_it(
    cluster, admin, audit_path
):
    topic = "tailed"
    fill(cluster, admin, topic, [b"old"])
    with Tail(admin, topic) as tail:
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
    noted = wait_for_entries(audit_path, "tail", topic)
    assert noted[0]["outcome"] == "ok"
    assert noted[0]["effect"] == {"makes": status["channel"]}


def test_tail_takes_nothing_from_a_topic_without_channels(cluster, admin):
    topic = "kept"
    cluster.make(topic)
    publish(cluster, topic, [b"for the first that comes"])
    wait_for_channel(admin, topic, "")
    with Tail(admin, topic) as tail:
        assert tail.answer.status == 409
        assert "has no channel there" in json.loads(tail.answer.read())["message"]
    with Tail(admin, "no-such-topic") as tail:
        assert tail.answer.status == 404
    assert topic_stats(cluster.nsqds[0].http, topic)["depth"] == 1
    assert channels_of(cluster, topic) == [[], [], []]
    # Another node has a channel: that one can be tailed.
    told(cluster.nsqds[1], f"/channel/create?topic={topic}&channel=c")
    with Tail(admin, topic) as tail:
        status = tail.until(lambda name, _: name == "status")
        assert status["nodes"] == 1
        assert "has no channel there" in status["silent"][0]
        assert [len(names) for names in channels_of(cluster, topic)] == [0, 2, 0]


def test_tail_drops_what_is_too_fast_and_says_how_much(cluster, admin):
    topic = "fast"
    fill(cluster, admin, topic)
    with Tail(admin, topic) as tail:
        tail.until(lambda name, data: name == "status" and data["nodes"] == 3)
        began, shown = time.monotonic(), 0
        cluster.publish(topic, 1000)

        def is_over(name, data):
            nonlocal shown
            shown += name == "message"
            return name == "status" and data["shown"] + data["dropped"] == 1000

        status = tail.until(is_over)
        assert status["shown"] == shown
        # A hundred a second, and the second in which it began may have been half over.
        assert 100 <= shown <= 100 * (time.monotonic() - began + 2)


def test_the_order_of_a_tail_may_come_in_pieces(cluster, admin):
    cluster.make("pieces", "c")
    wait_for_channel(admin, "pieces", "c")
    body = b'{"topic": "pieces"}'
    head = b"POST /ui/tail HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(admin.http, timeout=15) as connection:
        connection.sendall(head)
        answer = connection.makefile("rb")
        assert answer.readline().startswith(b"HTTP/1.1 100 ")
        connection.sendall(body[:9])
        assert get(admin.http, "/ping").status == 200  # the first piece was read before
        connection.sendall(body[9:])
        assert answer.readline() == b"\r\n"
        assert answer.readline().startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"topic": "\xff"}'])
@pytest.mark.parametrize("path", ["/ui/tail", "/ui/actions", "/ui/messages/changes"])
def test_a_body_that_is_no_order_is_refused(admin, path, body):
    assert request(admin.http, "POST", path, body, JSON_TYPE).status == 400


def test_tails_are_few_and_end_when_nsqadmin_stops(cluster):
    topic = "few"
    cluster.make(topic, "c")
    with contextlib.ExitStack() as stack:
        with cluster.admin("nsqfast", "--mask-json=password") as admin:
            wait_for_channel(admin, topic, "c")
            tails = [stack.enter_context(Tail(admin, topic)) for _ in range(4)]
            assert [tail.answer.status for tail in tails] == [200] * 4
            with Tail(admin, topic) as fifth:
                assert fifth.answer.status == 429
            tails[0].until(lambda name, data: name == "status" and data["nodes"] == 3)
            publish(cluster, topic, [b'{"password": "geh3im"}', b"y" * 10_000])
            message = tails[0].until(lambda name, _: name == "message")
            assert (message["text"], message["is_masked"]) == ('{"password": "***"}', True)
            cut = tails[0].until(lambda name, _: name == "message")
            assert (cut["size"], len(cut["text"]), cut["is_truncated"]) == (10_000, 4096, True)
        assert all(tail.answer.read() is not None for tail in tails)
    wait_until(lambda: channels_of(cluster, topic) == [["c"]] * 3, "no channel is left")


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("implementation", ["nsqfast", pytest.param("go", marks=pytest.mark.go)])
def test_tail_of_nsqd_that_want_tls_or_a_secret_says_why(implementation, tmp_path):
    folders = [tmp_path / name for name in ("tls", "auth", "open")]
    for folder in folders:
        folder.mkdir()
    tls = [*Certificates(folders[0]).flags(), "--tls-required=tcp-https"]
    with AuthServer() as auth, contextlib.ExitStack() as stack:
        flags = (tls, [f"--auth-http-address={auth.address}"], [])
        nsqds = [
            stack.enter_context(start_nsqd(implementation, folder, *more))
            for folder, more in zip(folders, flags, strict=True)
        ]
        for nsqd in nsqds[:2]:
            told(nsqd, "/topic/create?topic=orders")
            told(nsqd, "/channel/create?topic=orders&channel=billing")
        admin = stack.enter_context(start_nsqadmin("nsqfast", "--poll-interval=200ms", nsqds=nsqds))
        wait_for_channel(admin, "orders", "billing", 2)
        with Tail(admin, "orders") as tail:
            assert tail.answer.status == 409
            assert json.loads(tail.answer.read())["message"] in REASONS
        for nsqd in nsqds[:2]:
            assert list(topic_stats(nsqd.http, "orders")["channels"]) == ["billing"]
        told(nsqds[2], "/topic/create?topic=orders")
        told(nsqds[2], "/channel/create?topic=orders&channel=billing")
        wait_for_channel(admin, "orders", "billing", 3)
        with Tail(admin, "orders") as tail:
            told(nsqds[2], "/pub?topic=orders", b"hello")
            assert tail.until(lambda name, _: name == "message")["text"] == "hello"
            # Before it is refused each of them is not connected yet.
            status = tail.until(lambda _, data: str(data.get("silent")).count("(E_") == 2)
            named = [f"{text_of(n.tcp)}: {why}" for n, why in zip(nsqds, REASONS, strict=False)]
            assert (status["nodes"], sorted(status["silent"])) == (1, sorted(named))
        assert "Traceback" not in admin.stderr
