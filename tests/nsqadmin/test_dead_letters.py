"""Dead letters of a channel as nsqadmin shows them, and how they go back, at real nodes and at one that lies."""

import json
from urllib.parse import urlencode

import pytest

from nsqadmin.test_commit_log import start_admin
from support.access import FORM, run_admin
from support.admin import text_of, wait_for_channel
from support.authd import AuthServer, grant, permit
from support.fake_stats import FakeStats
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import get, post, request, topic_stats
from support.wire import Client

pytestmark = pytest.mark.slow

IDENTITY = b'{"client_id": "worker-7", "feature_negotiation": true, "reject": true}'
JSON_TYPE = {"Content-Type": "application/json"}
PAGE = "/topics/t/c/dead"
MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def two(tmp_path):
    """Two nsqd with topic t, channel c, and an nsqadmin that knows them."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    with start_nsqd("nsqfast", folders[0]) as a, start_nsqd("nsqfast", folders[1]) as b:
        for broker in (a, b):
            make(broker)
        with start_admin(text_of(a.http), text_of(b.http)) as admin:
            wait_for_channel(admin, "t", "c", 2)
            yield admin, a, b


def make(broker, topic="t", channel="c"):
    post(broker.http, f"/topic/create?topic={topic}")
    if channel:
        post(broker.http, f"/channel/create?topic={topic}&channel={channel}")


def reject(broker, *errors, topic="t", channel="c", body=b"%d"):
    """A message dies for each of these."""
    for number, error in enumerate(errors):
        post(broker.http, f"/pub?topic={topic}", body % number if b"%" in body else body)
        with Client(broker.tcp) as client:
            client.command("IDENTIFY", body=IDENTITY)
            client.read_response()
            client.sub(topic, channel, 1)
            message = client.read_message()
            client.command("RDY", "0")
            client.command("REJ", message.id.decode(), error)
            client.barrier()


def page_of(admin, path=PAGE, headers=None):
    answer = request(admin.http, "GET", path, None, {"Accept": "text/html", **(headers or {})})
    assert answer.status == 200, answer
    return answer.body.decode()


def look(admin, headers=None, **more):
    """By node."""
    query = urlencode({"topic": "t", "channel": "c", **more})
    answer = request(admin.http, "GET", f"/ui/dead?{query}", None, headers)
    assert answer.status == 200, answer
    return {node["node"]: node for node in answer.json()["nodes"]}


def known(admin, broker, count):
    """The sample of this node, when it is known of so many why they died."""

    def are_known():
        sample = look(admin)[text_of(broker.http)]["sample"] or {"messages": []}
        return sum(each["death"] is not None for each in sample["messages"]) == count

    wait_until(are_known, f"{count} deaths are known")
    return look(admin)[text_of(broker.http)]["sample"]["messages"]


def redrive(admin, do="start", headers=None, **given):
    body = {"topic": "t", "channel": "c", "do": do, "confirm": "c", **given}
    return request(
        admin.http, "POST", "/ui/redrives", json.dumps(body).encode(), JSON_TYPE | (headers or {})
    )


def depth(broker, topic="t", channel="c"):
    found = topic_stats(broker.http, topic)
    return (found["channels"][channel] if channel else found)["depth"]


def state_of(admin, broker):
    return look(admin)[text_of(broker.http)]["redrive"]


def wait_for_end(admin, broker):
    wait_until(lambda: state_of(admin, broker)["state"] != "running", "the redrive is over")
    return state_of(admin, broker)


def test_what_died_and_why(two):
    admin, a, b = two
    reject(a, "KeyError: 'total'", "KeyError: 'total'", f"{MARKUP} is no order")
    reject(b, "timeout")
    message = known(admin, a, 3)[0]
    death = message["death"]
    assert message["body"]["body"] == "0"
    assert (death["reason"], death["client"]) == ("rejected", "worker-7")
    assert death["error"] == "KeyError: 'total'"
    assert death["published"] < death["died"]
    known(admin, b, 1)
    found = look(admin)
    counts = [found[text_of(broker.http)]["counts"] for broker in (a, b)]
    assert counts == [{"rejected": 3}, {"rejected": 1}]
    assert {node["topic"] for node in found.values()} == {"t.c.dead"}
    page = page_of(admin)
    assert "of a sample: 4 of 4" in page
    assert page.count("KeyError: &#39;total&#39;<") == 3  # one group, two rows
    assert "3 rejected" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "worker-7" in page
    shown = "4 messages died since nsqd was started: 4 rejected"
    wait_until(lambda: shown in page_of(admin, "/topics/t/c"), "the channel's page says it")
    # In bodies somebody searches, as among other messages; one node alone can be looked at.
    assert "1 match, scanned 4 of 4" in page_of(admin, f"{PAGE}?search=2")
    assert list(look(admin, node=text_of(b.http))) == [text_of(b.http)]
    assert b'href="/topics/t/c/dead"' in get(admin.http, "/topics/t/c/messages").body
    assert request(admin.http, "GET", "/topics/t/d/dead").status == 404
    assert request(admin.http, "GET", "/ui/dead?topic=t&channel=d").status == 404


def test_all_go_back(two):
    admin, a, b = two
    for broker in (a, b):
        post(broker.http, "/mpub?topic=t.c.dead", b"1\n2\n3")
    assert redrive(admin, confirm="").status == 409
    assert (depth(a), depth(b)) == (0, 0)
    answer = redrive(admin)
    assert (answer.status, [one["ok"] for one in answer.json()["results"]]) == (200, [True] * 2)
    for broker in (a, b):
        assert wait_for_end(admin, broker)["moved"] == 3
        assert (depth(broker), depth(broker, "t.c.dead", "")) == (3, 0)
    again = redrive(admin)
    assert (again.status, again.json()["message"]) == (
        409,
        "No node that answers has dead letters.",
    )
    audit = get(admin.http, "/audit").body.decode()
    assert "redrive" in audit


def test_some_go_back_slowly_until_that_is_ended(two):
    admin, a, b = two
    post(a.http, "/mpub?topic=t.c.dead", b"\n".join(b"%d" % number for number in range(1000)))
    answer = redrive(admin, rate=1, limit=900, search="9")
    # The other one has none, so it is not told.
    assert [one["node"] for one in answer.json()["results"]] == [text_of(a.http)]
    state = state_of(admin, a)
    assert (state["rate"], state["limit"], state["search"]) == (1.0, 900, "9")
    assert state_of(admin, b) is None
    page = page_of(admin)
    assert "running" in page
    assert "End what is running" in page
    assert "with “9”" in page
    refused = redrive(admin)
    assert refused.status == 502
    assert "a redrive of this channel is running there" in refused.json()["message"]
    assert redrive(admin, "cancel").status == 200
    assert wait_for_end(admin, a)["state"] == "cancelled"
    assert redrive(admin, "cancel").status == 409
    assert depth(a, "t.c.dead", "") > 900
    audit = get(admin.http, "/audit").body.decode()
    assert "cancel_redrive" in audit


def test_those_that_are_shown_are_deleted(two):
    """A search and a reason choose the same on the page and at the nodes."""
    admin, a, b = two
    bodies = [b'{"user": {"id": %d}, "status": "failed"}' % number for number in (17, 170, 17)]
    for broker in (a, b):
        post(broker.http, "/mpub?topic=t.c.dead", b"\n".join([*bodies, b"user.id:17"]))
    search = "status:failed user.id:17"
    found = look(admin, search=search)
    shown = [each["body"]["body"] for node in found.values() for each in node["sample"]["messages"]]
    assert [each.encode() for each in shown] == [bodies[0], bodies[2]] * 2
    assert "4 matches, scanned 8 of 8" in page_of(admin, f"{PAGE}?{urlencode({'search': search})}")
    refused = redrive(admin, "delete", search=search, confirm="")
    assert (refused.status, depth(a, "t.c.dead", "")) == (409, 4)
    assert refused.json()["message"] == "Nothing brings them back: type c to confirm."
    assert redrive(admin, "delete", search=search, limit=1).status == 400
    assert redrive(admin, "delete", search=search).status == 200
    for broker in (a, b):
        state = wait_for_end(admin, broker)
        assert (state["delete"], state["moved"]) == (True, 2)
        assert (depth(broker), depth(broker, "t.c.dead", "")) == (0, 2)
    page = page_of(admin)
    assert "2 deleted" in page
    assert "with “status:failed user.id:17”" in page
    audit = get(admin.http, "/audit").body.decode()
    assert "delete_dead_letters" in audit
    assert search in audit
    assert redrive(admin, "delete").status == 200
    wait_for_end(admin, a)
    assert depth(a, "t.c.dead", "") == 0


def test_those_of_a_reason(two):
    admin, a, _ = two
    policy = {"topic": "^t$", "definition": {"max_failures": 1}}
    assert request(a.http, "PUT", "/policies/dead", json.dumps(policy).encode()).status == 200
    reject(a, "no", "nay")
    post(a.http, "/pub?topic=t", b"late")
    with Client(a.tcp) as client:
        client.sub("t", "c", 1)
        client.command("REQ", client.read_message().id.decode(), "0")
        client.barrier()
    known(admin, a, 3)
    post(a.http, "/pub?topic=t.c.dead", b"stranger")
    for reason, count in (("rejected", 2), ("failed", 1), ("expired", 0), ("boredom", 4)):
        sample = look(admin, reason=reason)[text_of(a.http)]["sample"]["messages"]
        assert len(sample) == count
    page = page_of(admin, f"{PAGE}?reason=failed")
    assert "of a sample: 1 of 4" in page
    assert '<option value="failed" selected>' in page
    assert redrive(admin, "delete", reason="boredom").status == 400
    assert redrive(admin, "delete", reason="failed").status == 200
    assert wait_for_end(admin, a)["moved"] == 1
    assert "1 deleted, failed" in page_of(admin)
    assert redrive(admin, reason="rejected").status == 200
    wait_for_end(admin, a)
    assert (depth(a), depth(a, "t.c.dead", "")) == (2, 1)


def test_what_is_no_search(two):
    """One line says why; nothing is shown as if it were found, and nothing is done."""
    admin, a, _ = two
    post(a.http, "/pub?topic=t.c.dead", b"parcel")
    line = "That is no search: a quote is not closed."
    page = page_of(admin, f"{PAGE}?search=%22x")
    assert line in page
    assert "parcel" not in page
    answer = request(admin.http, "GET", "/ui/dead?topic=t&channel=c&search=%22x")
    assert (answer.status, answer.json()["message"]) == (400, line)
    for do in ("start", "delete"):
        answer = redrive(admin, do, search='"x')
        assert (answer.status, answer.json()["message"]) == (400, line)
    assert redrive(admin, search="x" * 1025).status == 400
    assert depth(a, "t.c.dead", "") == 1


def test_the_form_does_the_same_without_scripts(two):
    admin, a, _ = two
    post(a.http, "/mpub?topic=t.c.dead", b"red\nblue")

    def send(**more):
        fields = {"topic": "t", "channel": "c", "source": "", "do": "start", "search": "red"}
        body = urlencode(fields | {"rate": "0", "limit": "0"} | more).encode()
        headers = FORM | {"Accept": "text/html"}
        answer = request(admin.http, "POST", "/ui/redrives", body, headers)
        return answer.status, answer.body.decode()

    status, page = send(confirm="d")
    assert status == 409
    assert "type c to confirm" in page
    assert 'value="red"' in page
    assert 'href="/topics/t/c/dead?search=red&amp;view=text"' in page
    assert send(confirm="c", rate="-1")[0] == 400
    status, page = send(confirm="c")
    assert status == 200
    assert "Results by node" in page
    wait_for_end(admin, a)
    assert (depth(a), depth(a, "t.c.dead", "")) == (1, 1)


def test_dead_letters_in_several_channels(two):
    admin, a, b = two
    make(a, "t.c.dead", "one")
    make(a, "t.c.dead", "two")
    post(a.http, "/mpub?topic=t.c.dead", b"1\n2")
    make(b, "t.c.dead", "one")
    post(b.http, "/pub?topic=t.c.dead", b"3")
    node = look(admin)[text_of(a.http)]
    assert (node["queues"], node["queue"]) == ({"one": 2, "two": 2}, "one")
    assert look(admin, source="two")[text_of(a.http)]["queue"] == "two"
    page = page_of(admin)
    assert 'href="/topics/t/c/dead?source=two"' in page
    answer = redrive(admin)
    told = {one["node"]: one["ok"] for one in answer.json()["results"]}
    assert (answer.status, told) == (502, {text_of(a.http): False, text_of(b.http): True})
    assert "say in which" in answer.json()["message"]
    assert redrive(admin, source="two").status == 200
    wait_for_end(admin, a)
    assert (depth(a), depth(a, "t.c.dead", "one"), depth(a, "t.c.dead", "two")) == (2, 2, 0)


def test_channels_that_share_a_topic(two):
    admin, a, _ = two
    make(a, "t", "d")
    policy = {"topic": "^t$", "definition": {"max_failures": 1, "dead_letter_topic": "graves"}}
    assert request(a.http, "PUT", "/policies/dead", json.dumps(policy).encode()).status == 200
    # Before one dies the policy says where they go.
    assert look(admin)[text_of(a.http)]["topic"] == "graves"
    reject(a, "ours")
    reject(a, "theirs", channel="d")
    (message,) = known(admin, a, 1)
    assert message["death"]["error"] == "ours"
    assert "of a sample: 1 of 2" in page_of(admin)


@pytest.mark.go
def test_a_node_of_go_cannot(tmp_path):
    for name in ("go", "ours"):
        (tmp_path / name).mkdir()
    with (
        start_nsqd("go", tmp_path / "go") as go,
        start_nsqd("nsqfast", tmp_path / "ours") as ours,
        start_admin(text_of(go.http), text_of(ours.http)) as admin,
    ):
        for broker in (go, ours):
            make(broker)
        wait_for_channel(admin, "t", "c", 2)
        post(ours.http, "/pub?topic=t.c.dead", b"1")
        node = look(admin)[text_of(go.http)]
        assert node["sentence"].endswith("has no dead letters: only nsqfast-nsqd does.")
        assert node["is_failed"] is False
        assert "only nsqfast-nsqd does" in page_of(admin)
        answer = redrive(admin)
        assert (answer.status, len(answer.json()["results"])) == (200, 1)
        wait_for_end(admin, ours)
        assert depth(ours) == 1


def test_a_topic_that_takes_none_is_a_problem(two):
    admin, a, _ = two
    post(a.http, "/pub?topic=t.c.dead", b"1")
    policy = {"topic": "^t.c.dead$", "definition": {"max_messages": 1}}
    assert request(a.http, "PUT", "/policies/full", json.dumps(policy).encode()).status == 200
    reject(a, "why")

    def texts():
        problems = get(admin.http, "/ui/problems").json()["problems"]
        return [each["text"] for each in problems if each["rule"] == "dead_letters_refused"]

    wait_until(lambda: any("t.c.dead takes none: " in each for each in texts()), "it is told")
    node = look(admin)[text_of(a.http)]
    assert (node["counts"], node["queues"]) == ({}, {"": 1})
    assert f"messages that failed wait: t.c.dead takes none: {node['refusal']}" in page_of(admin)


def test_a_node_that_is_gone(two):
    admin, a, b = two
    post(a.http, "/pub?topic=t.c.dead", b"1")
    b.kill()
    assert f"{text_of(b.http)} did not answer: " in page_of(admin)
    answer = redrive(admin)
    assert answer.status == 502
    told = {one["node"]: one["ok"] for one in answer.json()["results"]}
    assert told == {text_of(a.http): True, text_of(b.http): False}


@pytest.mark.parametrize(
    "given",
    [
        {"rate": -1},
        {"rate": 1e9},
        {"rate": "x"},
        {"limit": -1},
        {"limit": 0.5},
        {"do": "explode"},
    ],
)
def test_orders_that_cannot_be_meant(given):
    with run_admin() as admin:
        assert redrive(admin, **given).status == 400


def test_orders_for_channels_that_nobody_has():
    with run_admin() as admin:
        assert redrive(admin).status == 404


def test_viewers_see_numbers_and_nothing_else(tmp_path):
    """Errors may tell what bodies hold."""
    with start_nsqd("nsqfast", tmp_path) as broker:
        make(broker)
        reject(broker, "password is wrong", body=b"secret")
        for flags, errors in (
            ((), ["(hidden)", "password is wrong"]),
            (("--viewer-sees-bodies",), ["password is wrong"] * 2),
            (("--viewer-sees-bodies", "--mask-json=other"), ["(hidden)", "password is wrong"]),
            (("--mask-json=password",), ["(hidden)", "(hidden)"]),
        ):
            nodes = f"--nsqd-http-address={text_of(broker.http)}"
            with run_admin("--admin-user=ann", nodes, *flags) as admin:
                wait_for_channel(admin, "t", "c", 1)
                for name, error in zip(("bob", "ann"), errors, strict=True):
                    headers = {"X-Forwarded-User": name}
                    (node,) = look(admin, headers).values()
                    (message,) = node["sample"]["messages"]
                    assert message["death"]["error"] == error
                    page = page_of(admin, headers=headers)
                    for what in ("Redrive", "Delete"):
                        assert (f"{what}</button>" in page) == (name == "ann")
                    assert ("Edit a copy…" in page) == (name == "ann")
                    assert ("password is wrong" in page) == (error != "(hidden)")
                for do in ("start", "delete"):
                    refused = redrive(admin, do, headers={"X-Forwarded-User": "bob"})
                    assert refused.status == 403


def test_a_node_that_wants_a_secret(tmp_path):
    """Its numbers are for everybody who may read /stats."""
    with AuthServer() as auth:
        auth.answers["word"] = grant(permit())
        flags = (f"--auth-http-address={auth.address}", "--http-auth-required")
        with (
            start_nsqd("nsqfast", tmp_path, *flags) as broker,
            start_admin(text_of(broker.http)) as admin,
        ):
            for target in (
                "/topic/create?topic=t",
                "/channel/create?topic=t&channel=c",
                "/pub?topic=t.c.dead",
            ):
                bearer = {"Authorization": "Bearer word"}
                assert request(broker.http, "POST", target, b"1", bearer).status == 200
            wait_for_channel(admin, "t", "c", 1)
            (node,) = look(admin).values()
            assert (node["sentence"], node["queues"]) == ("", {"": 1})
            page = page_of(admin)
            assert "it does not show redrives: " in page
            assert "not known" in page
            assert redrive(admin).status == 502


DEATH = {"reason": MARKUP, "topic": "t", "channel": "c", "client": MARKUP, "first_id": MARKUP}
LETTER = {"id": "0" * 16, "size": 1, "body": MARKUP, "death": DEATH | {"error": MARKUP * 999}}


@pytest.mark.parametrize(
    ("redriven", "letters"),
    [
        (
            {
                "state": MARKUP,
                "error": MARKUP * 999,
                "filter": MARKUP,
                "search": MARKUP,
                "reason": MARKUP,
            },
            [LETTER],
        ),
        ({"state": "running", "moved": 1 << 60}, [LETTER]),
        ({"rate": -1e300, "begun": -1e300}, [LETTER]),
        ([], []),
        ({}, [LETTER | {"death": {"died": 1e300}}]),
        ({}, [LETTER | {"death": {"died": 1 << 62, "published": 0}}]),
        ({}, [LETTER | {"death": [MARKUP]}]),
    ],
)
def test_a_node_that_lies(redriven, letters):
    said = {"version": "1.3.0", "health": "OK", "start_time": 1}
    channel = {"channel_name": "c", "dead_letter_topic": "t.c.dead"}
    channel |= {"dead_letter_counts": {MARKUP: 1}, "dead_letter_refusal": MARKUP * 999}
    names = {"t": [channel], "t.c.dead": []}
    said["topics"] = [
        {"topic_name": name, "depth": 1, "channels": given} for name, given in names.items()
    ]
    answers = {"/stats": said, "/channel/redrive": redriven, "/topic/peek": {"messages": letters}}
    with (
        FakeStats(lambda path, _: answers.get(path)) as liar,
        start_admin(liar.address) as admin,
    ):
        wait_for_channel(admin, "t", "c", 1)
        for page in (page_of(admin), page_of(admin, "/topics/t/c"), page_of(admin, "/problems")):
            assert "<script>alert" not in page
            assert len(page) < 60_000
        redrive(admin)
