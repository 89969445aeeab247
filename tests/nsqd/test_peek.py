"""/channel/peek, /topic/peek and /channel/deferred/...: what waits is shown, and comes as if nobody had looked."""

import asyncio
import base64
import os
import threading
import time
import weakref
from urllib.parse import quote_from_bytes

import pytest
from nsqfast._ext.broker.picker import Picker

from nsqfast.net.http_message import Request
from nsqfast.nsqd import http_messages, http_peek
from support.authd import AuthServer, Reply, grant, permit
from support.http import HttpBroker
from support.server import start_nsqd
from support.topics import make, publish
from support.web import Answer, get, post, request, topic_stats
from support.wire import Client

HOUR_MS = 3_600_000
MARKUP = '<img src=x onerror=alert(1)>"><script>'
DURABLE = ("--mem-queue-size=0", "--sync-every=1")
PIECE_SIZE_MAX = 65536


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    flags = ["--mem-queue-size=3", "--max-bytes-per-file=1000", "--max-msg-size=2000000"]
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("peek"), *flags) as server:
        yield server


def peek(broker, topic, channel="c", **wanted):
    query = "".join(f"&{name}={value}" for name, value in wanted.items())
    answer = get(broker.http, f"/channel/peek?topic={topic}&channel={channel}{query}")
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    return answer.json()


def texts(found):
    return [message["body"] for message in found["messages"]]


def change(broker, what, topic, message_id, channel="c"):
    target = f"/channel/deferred/{what}?topic={topic}&channel={channel}&id={message_id}"
    return post(broker.http, target)


def deferred_ids(broker, topic):
    found = peek(broker, topic, state="deferred", limit=100)
    return {message["body"]: message["id"] for message in found["messages"]}


def counts(broker, topic):
    found = topic_stats(broker.http, topic)["channels"]["c"]
    names = "depth backend_depth in_flight_count deferred_count requeue_count timeout_count"
    return {name: found[name] for name in [*names.split(), "message_count"]}


# -- what is answered


def test_a_queue_over_memory_and_disk(broker, topic, connect):
    bodies = [f"body {number}" for number in range(150)]
    publish(broker, topic, *(body.encode() for body in bodies))
    before = counts(broker, topic)
    found = peek(broker, topic)
    assert (found["topic"], found["channel"]) == (topic, "c")
    assert (found["state"], found["depth"], found["offset"]) == ("ready", 150, 0)
    assert (found["scanned"], found["is_complete"], found["next_offset"]) == (20, False, 20)
    assert found["note"] is None
    assert texts(found) == bodies[:20]
    wheres = [message["where"] for message in found["messages"]]
    assert wheres == ["memory"] * 3 + ["disk"] * 17
    shown = []
    for offset in (0, 100):
        shown += peek(broker, topic, limit=100, offset=offset)["messages"]
    first = peek(broker, topic, limit=100)
    rest = peek(broker, topic, limit=100, **{"from": first["next"]})
    pages = first["messages"] + rest["messages"]
    assert [message["id"] for message in pages] == [message["id"] for message in shown]
    assert (rest["is_complete"], rest["next"], rest["next_offset"]) == (True, None, None)
    assert [message["body"] for message in shown] == bodies
    assert counts(broker, topic) == before
    client = connect(broker.tcp)
    client.sub(topic, "c", 150)
    got = client.read_messages(150)
    assert [(m.id.decode(), m.timestamp_ns, m.attempts - 1) for m in got] == [
        (message["id"], message["timestamp"], message["attempts"]) for message in shown
    ]


def test_every_field_of_a_message(broker, topic, connect):
    publish(broker, topic, b"abc")
    found = peek(broker, topic)
    [message] = found["messages"]
    assert (
        list(message)
        == (
            "id timestamp age_ms attempts size where due due_in_ms client body encoding is_truncated"
        ).split()
    )
    assert len(message["id"]) == 16
    assert message["age_ms"] == (found["taken_at"] - message["timestamp"]) // 1_000_000
    assert (message["attempts"], message["size"], message["where"]) == (0, 3, "memory")
    assert message["due"] is message["due_in_ms"] is message["client"] is None
    assert (message["body"], message["encoding"]) == ("abc", "text")
    assert message["is_truncated"] is False


def test_in_flight_with_its_client_and_time(broker, topic, connect):
    client = connect(broker.tcp)
    client.identify(
        client_id=MARKUP,
        hostname="h<b>",
        user_agent="u",
        msg_timeout=50_000,
        feature_negotiation=True,
    )
    client.sub(topic, "c", 2)
    publish(broker, topic, b"one", b"two", b"three")
    client.read_messages(2)
    found = peek(broker, topic, state="in_flight")
    assert (found["depth"], found["is_complete"]) == (2, True)
    for message in found["messages"]:
        assert (message["where"], message["attempts"]) == ("in_flight", 1)
        assert 40_000 < message["due_in_ms"] <= 50_000
        assert (message["client"]["client_id"], message["client"]["hostname"]) == (MARKUP, "h<b>")
        address, port = client.socket.getsockname()
        assert message["client"]["remote_address"] == f"{address}:{port}"
    assert texts(peek(broker, topic)) == ["three"]


def test_bodies_of_every_kind(broker, topic):
    cut = "é".encode() * PIECE_SIZE_MAX  # two bytes each, and one in front: the last is cut in two
    large = os.urandom(1 << 20)
    bodies = [b"plain", MARKUP.encode(), "žluťoučký \u2028".encode(), b"\0\x01\x7f", b"\xff\xfe"]
    publish(broker, topic, *bodies, large, b"x" + cut, cut)
    shown = peek(broker, topic)["messages"]
    for body, message in zip(bodies[:4], shown[:4], strict=True):
        assert (message["body"].encode(), message["encoding"]) == (body, "text")
        assert message["is_truncated"] is False
    assert (shown[4]["body"], shown[4]["encoding"]) == ("//4=", "base64")
    assert shown[5]["encoding"] == "base64"
    assert base64.b64decode(shown[5]["body"]) == large[:PIECE_SIZE_MAX]
    assert (shown[5]["size"], shown[5]["is_truncated"]) == (1 << 20, True)
    assert shown[6]["body"] == "x" + "é" * (PIECE_SIZE_MAX // 2 - 1)
    assert (shown[6]["encoding"], shown[6]["is_truncated"]) == ("text", True)
    assert shown[7]["body"] == "é" * (PIECE_SIZE_MAX // 2)
    answer = get(broker.http, f"/channel/peek?topic={topic}&channel=c&max_body=5")
    assert b"<" not in answer.body
    pieces = answer.json()["messages"]
    assert pieces[0]["body"] == "plain"
    assert not pieces[0]["is_truncated"]
    assert (pieces[1]["body"], pieces[1]["is_truncated"]) == (MARKUP[:5], True)
    assert pieces[6]["body"] == "xéé"


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_hundred_bodies_of_a_mebibyte(tmp_path, where):
    flags = ["--max-msg-size=2000000", f"--mem-queue-size={10000 if where == 'memory' else 0}"]
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        make(server, "t")
        for number in range(100):
            publish(server, "t", bytes([number]) * (1 << 20))
        found = peek_all(server, "t")
        assert len(found) == 100
        for number, message in enumerate(found):
            assert message["where"] == where
            is_text = message["encoding"] == "text"
            body = message["body"].encode() if is_text else base64.b64decode(message["body"])
            assert body == bytes([number]) * PIECE_SIZE_MAX


def peek_all(broker, topic, **wanted):
    """Pages of a hundred, of which none is larger than is good for the others."""
    found, offset = [], 0
    while offset is not None:
        query = "".join(f"&{name}={value}" for name, value in wanted.items())
        target = f"/channel/peek?topic={topic}&channel=c&limit=100&offset={offset}{query}"
        answer = get(broker.http, target)
        assert len(answer.body) < 3_000_000
        page = answer.json()
        found += page["messages"]
        offset = page["next_offset"]
        assert page["note"] == (None if offset is None else "no more bodies fit into one answer")
        assert page["is_complete"] == (offset is None)
    return found


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_filter_goes_on_where_an_answer_was_full(tmp_path, where):
    flags = ["--max-msg-size=2000000", f"--mem-queue-size={20 if where == 'memory' else 0}"]
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        make(server, "t")
        for number in range(60):
            publish(server, "t", b"%02d%s" % (number, b"<" * PIECE_SIZE_MAX))
            publish(server, "t", b"small")
        found = peek_all(server, "t", filter="%3C%3C")
        assert [message["body"][:2] for message in found] == [f"{n:02d}" for n in range(60)]


def test_what_is_no_search(broker, topic):
    answer = get(broker.http, f"/channel/peek?topic={topic}&channel=c&search=a:")
    assert (answer.status, answer.json()["message"]) == (400, "INVALID_ARG_SEARCH")
    assert "quotes" in answer.json()["reason"]


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_search_by_field(tmp_path, where):
    """In bodies of any size; what it finds is what it drops."""
    flags = ["--max-msg-size=2000000", f"--mem-queue-size={1000 if where == 'memory' else 0}"]
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        make(server, "t")
        sizes = [300_000 if number % 4 == 0 else 10 for number in range(20)]
        for number, size in enumerate(sizes):
            publish(server, "t", b'{"text": "%b", "user": {"id": %d}}' % (b"x" * size, number % 10))
        publish(server, "t", b"user.id:4")
        found = peek_all(server, "t", search="user.id:4")
        assert [message["size"] > 1000 for message in found] == [True, False]
        found = peek_all(server, "t", search="user.id:4", filter="x" * 11)
        assert [message["size"] > 1000 for message in found] == [True]
        answer = post(server.http, "/channel/messages/drop?topic=t&channel=c&search=user.id:4")
        assert answer.json()["changed"] == 2
        assert peek_all(server, "t", search="user.id:4") == []
        assert len(peek_all(server, "t")) == 19


def test_a_filter_is_of_bytes(broker, topic):
    publish(broker, topic, b"a\xff\x00b", b"a;b", b"a b", b"A B", b"a+b")
    for needle, count in ((b"\xff\x00", 1), (b";", 1), (b" ", 2), (b"a", 4), (b"+", 1), (b"x", 0)):
        found = peek(broker, topic, filter=quote_from_bytes(needle))
        assert len(found["messages"]) == count
        assert (found["scanned"], found["depth"], found["is_complete"]) == (5, 5, True)
    found = peek(broker, topic, filter="a", limit=2)
    assert (len(found["messages"]), found["next_offset"], found["is_complete"]) == (2, 2, False)
    found = peek(broker, topic, filter="a", offset=2)
    assert texts(found) == ["a b", "a+b"]


def calendar(broker, topic, **wanted):
    query = "".join(f"&{name}={value}" for name, value in wanted.items())
    return get(broker.http, f"/channel/deferred?topic={topic}&channel=c{query}")


@pytest.mark.parametrize("kept", [100, 1500], ids=["in memory", "on disk"])
def test_a_calendar_of_what_is_deferred(broker, topic, kept):
    """Beyond a thousand they are on disk alone."""
    publish(broker, topic, *[b"%d" % number for number in range(kept)], defer_ms=HOUR_MS)
    publish(broker, topic, b"soon", defer_ms=60_000)
    publish(broker, topic, b"late", defer_ms=HOUR_MS // 2)
    first = time.time_ns() // 10**9
    answer = calendar(broker, topic, step=1000, count=3, first=first)
    assert answer.status == 200
    found = answer.json()
    taken_at, last_due = found.pop("taken_at"), found.pop("last_due")
    assert found == {
        "topic": topic,
        "channel": "c",
        "deferred_count": kept + 2,
        "step": 1000,
        "first": first,
        "counts": [1, 1, 0],
        "later": kept,
    }
    assert taken_at >= first * 10**9
    assert 0 < last_due - taken_at <= HOUR_MS * 10**6
    # What is due before the first step counts there.
    found = calendar(broker, topic, step=600, count=1, first=first + 1801).json()
    assert (found["counts"], found["later"]) == ([2], kept)
    found = calendar(broker, topic).json()
    assert (found["step"], len(found["counts"]), sum(found["counts"])) == (3600, 24, kept + 2)
    assert found["first"] % 3600 == 0
    assert counts(broker, topic)["deferred_count"] == kept + 2


def test_a_calendar_of_nothing_and_what_is_refused_of_one(broker, topic):
    assert calendar(broker, topic).json()["last_due"] is None
    for name, value in (
        *(("step", "0"), ("step", "7776001"), ("count", "0"), ("count", "2161")),
        *(("first", "-1"), ("first", "x"), ("count", "")),
    ):
        answer = calendar(broker, topic, **{name: value})
        assert (answer.status, answer.json()["message"]) == (400, f"INVALID_ARG_{name.upper()}")
    assert calendar(broker, topic, step=7776000, count=2160, first=2**63 // 10**9).status == 200
    assert get(broker.http, f"/channel/deferred?topic={topic}&channel=no").status == 404
    assert get(broker.http, f"/channel/deferred?topic={topic}").status == 400


def test_names_with_a_number_sign(broker):
    make(broker, "number-sign%23ephemeral", "c%23ephemeral")
    for number in range(5):
        publish(broker, "number-sign%23ephemeral", b"%d" % number)
    found = peek(broker, "number-sign%23ephemeral", "c%23ephemeral")
    assert (found["topic"], found["channel"]) == ("number-sign#ephemeral", "c#ephemeral")
    assert texts(found) == [
        "0",
        "1",
        "2",
    ]  # the others found no room, and there is no disk for them


def test_a_topic_without_a_channel(broker):
    assert post(broker.http, "/topic/create?topic=lonely").status == 200
    publish(broker, "lonely", b"1", b"2", b"3", b"4")
    found = get(broker.http, "/topic/peek?topic=lonely&limit=3").json()
    assert "channel" not in found
    assert (found["topic"], found["state"], found["depth"]) == ("lonely", "ready", 4)
    assert (texts(found), found["next_offset"]) == (["1", "2", "3"], 3)
    assert get(broker.http, "/topic/peek?topic=lonely&state=deferred").status == 400
    make(broker, "lonely")
    assert texts(peek(broker, "lonely")) == ["1", "2", "3", "4"]
    assert get(broker.http, "/topic/peek?topic=lonely").json()["messages"] == []


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=a%20b&channel=c", 400, "INVALID_ARG_TOPIC"),
        ("topic=known", 400, "MISSING_ARG_CHANNEL"),
        ("topic=known&channel=%3Cb%3E", 400, "INVALID_ARG_CHANNEL"),
        ("topic=unknown&channel=c", 404, "TOPIC_NOT_FOUND"),
        ("topic=known&channel=unknown", 404, "CHANNEL_NOT_FOUND"),
        ("topic=known&channel=c&limit=%zz", 400, "INVALID_REQUEST"),
        ("topic=known&channel=c&state=waiting", 400, "INVALID_ARG_STATE"),
        ("topic=known&channel=c&limit=0", 400, "INVALID_ARG_LIMIT"),
        ("topic=known&channel=c&limit=101", 400, "INVALID_ARG_LIMIT"),
        ("topic=known&channel=c&limit=-1", 400, "INVALID_ARG_LIMIT"),
        ("topic=known&channel=c&limit=%D9%A1", 400, "INVALID_ARG_LIMIT"),
        ("topic=known&channel=c&limit=", 400, "INVALID_ARG_LIMIT"),
        ("topic=known&channel=c&offset=10001", 400, "INVALID_ARG_OFFSET"),
        ("topic=known&channel=c&offset=" + "9" * 5000, 400, "INVALID_ARG_OFFSET"),
        ("topic=known&channel=c&max_body=65537", 400, "INVALID_ARG_MAX_BODY"),
        ("topic=known&channel=c&filter=" + "x" * 1025, 400, "INVALID_ARG_FILTER"),
        ("topic=known&channel=c&since=-1", 400, "INVALID_ARG_SINCE"),
        ("topic=known&channel=c&since=2026-11-26", 400, "INVALID_ARG_SINCE"),
        ("topic=known&channel=c&since=9223372036854775808", 400, "INVALID_ARG_SINCE"),
        ("topic=known&channel=c&from=", 400, "INVALID_ARG_FROM"),
        ("topic=known&channel=c&from=1-2-3-4-5-0123456789abcdef", 400, "INVALID_ARG_FROM"),
        ("topic=known&channel=c&from=%FF", 400, "INVALID_ARG_FROM"),
    ],
)
def test_what_is_refused(broker, query, status, code):
    make(broker, "known")
    answer = get(broker.http, f"/channel/peek?{query}")
    assert (answer.status, answer.json()) == (status, {"message": code})


@pytest.mark.parametrize("what", ["run", "cancel"])
@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=known&channel=unknown&id=0123456789abcdef", 404, "CHANNEL_NOT_FOUND"),
        ("topic=known&channel=c", 400, "MISSING_ARG_ID"),
        ("topic=known&channel=c&id=", 400, "INVALID_ARG_ID"),
        ("topic=known&channel=c&id=0123456789ABCDEF", 400, "INVALID_ARG_ID"),
        ("topic=known&channel=c&id=%FF123456789abcdef", 400, "INVALID_ARG_ID"),
        ("topic=known&channel=c&id=0123456789abcdef", 404, "MESSAGE_NOT_FOUND"),
    ],
)
def test_what_is_refused_of_deferred_ones(broker, what, query, status, code):
    make(broker, "known")
    answer = post(broker.http, f"/channel/deferred/{what}?{query}")
    assert (answer.status, answer.json()) == (status, {"message": code})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/channel/peek"),
        ("POST", "/topic/peek"),
        ("GET", "/channel/deferred/run"),
        ("GET", "/channel/deferred/cancel"),
    ],
)
def test_other_methods(broker, method, path):
    assert request(broker.http, method, path).status == 405


# -- deferred messages


def test_run_now(broker, topic, connect):
    client = connect(broker.tcp)
    client.sub(topic, "c", 10)
    publish(broker, topic, b"later", b"much later", defer_ms=HOUR_MS)
    ids = deferred_ids(broker, topic)
    assert change(broker, "run", topic, ids["later"]) == Answer(200, *ok_and_empty(broker))
    message = client.read_message()
    assert (message.body, message.attempts, message.id.decode()) == (b"later", 1, ids["later"])
    assert deferred_ids(broker, topic) == {"much later": ids["much later"]}
    answer = change(broker, "run", topic, ids["later"])
    assert (answer.status, answer.json()) == (404, {"message": "MESSAGE_NOT_FOUND"})
    client.fin(message)
    client.barrier()
    assert counts(broker, topic)["deferred_count"] == 1


async def test_few_search_at_a_time(tmp_path, monkeypatch):
    """Each keeps a list of all deferred messages."""
    alive, most = weakref.WeakSet(), []

    class Counted(Picker):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            alive.add(self)
            most.append(len(alive))

    monkeypatch.setattr(http_messages, "Picker", Counted)
    broker = HttpBroker(tmp_path / "data", has_shortcut=False)
    topic = broker.registry.topics.ensure("t")
    topic.channel("c")
    for _ in range(40_000):
        topic.put(b"-", 60_000)
    broker.registry.turn.end()
    target = b"/channel/deferred/cancel?topic=t&channel=c&id=" + b"0" * 16
    found = [broker.api(Request("POST", target, "here")) for _ in range(30)]
    answers = await asyncio.gather(*found)
    assert [answer.status for answer in answers] == [404] * 30
    assert len(most) == 30
    assert max(most) <= http_peek.PEEKS_MAX
    broker.registry.topics.close()


def ok_and_empty(broker):
    """What /channel/empty and its like answer."""
    answer = post(broker.http, "/topic/create?topic=any")
    return answer.headers, b""


# What was in memory only is lost by a kill in any case.
@pytest.mark.parametrize(("flags", "ends"), [((), "stop"), (DURABLE, "stop"), (DURABLE, "kill")])
def test_what_was_cancelled_does_not_come_back(tmp_path, flags, ends):
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        make(server, "t")
        publish(server, "t", b"a", b"b", b"c", b"d", defer_ms=HOUR_MS)
        ids = deferred_ids(server, "t")
        assert change(server, "cancel", "t", ids["b"]).status == 200
        assert change(server, "run", "t", ids["c"]).status == 200
        assert counts(server, "t")["deferred_count"] == 2
        assert texts(peek(server, "t")) == ["c"]
        getattr(server, ends)()
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        left = peek(server, "t")["messages"]
        deferred = peek(server, "t", state="deferred")["messages"]
        assert {m["id"] for m in left + deferred} == {ids[name] for name in "acd"}
        assert len(deferred) == 2
        for message in deferred:
            assert change(server, "run", "t", message["id"]).status == 200
        client.sub("t", "c", 10)
        got = client.read_messages(3)
        assert [m.id.decode() for m in got] == [m["id"] for m in left + deferred]
        for message in got:
            client.fin(message)
        client.barrier()
        assert counts(server, "t")["depth"] == counts(server, "t")["in_flight_count"] == 0


def test_what_came_from_disk_and_was_cancelled_does_not_come_back(tmp_path):
    """Its record was read, delivered and deferred; then the broker dies."""
    flags = ("--mem-queue-size=0",)
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        make(server, "t")
        publish(server, "t", b"a", b"b", b"c")
        with Client(server.tcp) as client:
            client.sub("t", "c", 3)
            for message in client.read_messages(3):
                client.command("REQ", message.id, str(HOUR_MS))
            client.barrier()
            assert change(server, "cancel", "t", deferred_ids(server, "t")["b"]).status == 200
            server.kill()
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        assert sorted(texts(peek(server, "t"))) == ["a", "c"]


# -- others meanwhile


def test_nobody_waits_for_a_disk_that_does_not_answer(tmp_path):
    """The next file is a pipe whose other end nobody has opened yet: to open it takes until somebody does."""
    flags = ("--mem-queue-size=0", "--max-bytes-per-file=500")
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        make(server, "t")
        publish(server, "t", *(b"%02d" % number for number in range(60)))
        [second] = tmp_path.glob("t:c.diskqueue.000001.dat")
        second.rename(tmp_path / "kept")
        os.mkfifo(second)
        answers = []
        looking = threading.Thread(target=lambda: answers.append(peek(server, "t", limit=100)))
        looking.start()
        try:
            for _ in range(20):
                client.pub("other", b"x")
                assert get(server.http, "/ping").status == 200
            assert not answers
        finally:
            os.close(os.open(second, os.O_WRONLY))
            looking.join()
        assert texts(answers[0])[:15] == [f"{number:02d}" for number in range(15)]
        second.unlink()
        (tmp_path / "kept").rename(second)
        assert texts(peek(server, "t", limit=100)) == [f"{number:02d}" for number in range(60)]


def test_looks_by_the_dozen_at_a_queue_that_moves(tmp_path):
    """More at once than are served at once; every one is answered and shows what was published."""
    flags = ("--mem-queue-size=20", "--max-bytes-per-file=3000")
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        make(server, "t")
        publish(server, "t", *(b"%d" % number for number in range(300)))
        answers, failures = [], []

        def look():
            try:
                for number in range(20):
                    wanted = {"filter": "1"} if number % 2 else {"offset": number}
                    answers.append(peek(server, "t", limit=100, **wanted))
            except AssertionError as error:
                failures.append(error)

        threads = [threading.Thread(target=look) for _ in range(12)]
        for thread in threads:
            thread.start()
        client.sub("t", "c", 5)
        got = []
        while len(got) < 300:
            message = client.read_message()
            got.append(int(message.body))
            client.fin(message)
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(answers) == 240
        assert got == list(range(300))
        for answer in answers:
            numbers = [int(text) for text in texts(answer)]
            assert numbers == sorted(numbers)
            assert all(0 <= number < 300 for number in numbers)


# -- who may


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with AuthServer() as authd:
        authd.answers["reader"] = grant(permit("^mine$", ("^c$",), "subscribe"))
        authd.answers["writer"] = grant(permit("^mine$", permissions="publish"))
        authd.answers["admin"] = grant(permit())
        authd.answers["nobody"] = Reply(b"", 403)
        flags = [f"--auth-http-address={authd.address}", "--http-auth-required"]
        with start_nsqd("nsqfast", tmp_path_factory.mktemp("guarded"), *flags) as server:
            for target in ("topic/create?topic=mine", "channel/create?topic=mine&channel=c"):
                assert ask(server, "POST", f"/{target}", "admin").status == 200
            yield server


def ask(server, method, target, secret):
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return request(server.http, method, target, headers=headers)


@pytest.mark.parametrize(
    ("secret", "statuses"),
    [
        ("", [401, 401, 401, 401]),
        ("nobody", [401, 401, 401, 401]),
        ("writer", [403, 403, 403, 403]),
        ("reader", [200, 403, 404, 404]),
        ("admin", [200, 200, 404, 404]),
    ],
)
def test_who_may_look(guarded, secret, statuses):
    one = "topic=mine&channel=c&id=0123456789abcdef"
    assert [
        ask(guarded, "GET", "/channel/peek?topic=mine&channel=c", secret).status,
        ask(guarded, "GET", "/topic/peek?topic=mine", secret).status,
        ask(guarded, "POST", f"/channel/deferred/run?{one}", secret).status,
        ask(guarded, "POST", f"/channel/deferred/cancel?{one}", secret).status,
    ] == statuses


def test_a_reader_of_one_channel_sees_no_other(guarded):
    for target in ("topic=mine&channel=d", "topic=other&channel=c"):
        assert ask(guarded, "GET", f"/channel/peek?{target}", "reader").status == 403
