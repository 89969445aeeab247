"""/channel/messages/...: an operator requeues, drops, copies and moves what waits, by id or by what a body contains."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.server import start_nsqd
from support.topics import make, publish
from support.waiting import eventually
from support.web import get, post, request, topic_stats
from support.wire import Client

HOUR_MS = 3_600_000
DURABLE = ("--mem-queue-size=0", "--sync-every=1")
BODIES = [b"keep 0", b"drop 1", b"keep 2", b"drop 3", b"drop 4"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    flags = ["--mem-queue-size=3", "--max-bytes-per-file=1000"]
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("messages"), *flags) as server:
        yield server


def peek(broker, topic, state="ready"):
    target = f"/channel/peek?topic={topic}&channel=c&limit=100&state={state}"
    return get(broker.http, target).json()["messages"]


def texts(broker, topic, state="ready"):
    return [message["body"] for message in peek(broker, topic, state)]


def change(broker, action, topic, **wanted):
    query = "".join(f"&{name}={value}" for name, value in wanted.items())
    answer = post(broker.http, f"/channel/messages/{action}?topic={topic}&channel=c{query}")
    assert answer.status == 200, answer
    return answer.json()


def hold(broker, topic, state, connect):
    """The five messages, all of that state."""
    client = connect(broker.tcp)
    if state == "in_flight":
        client.sub(topic, "c", 5)
    publish(broker, topic, *BODIES, defer_ms=HOUR_MS if state == "deferred" else 0)
    return client, client.read_messages(5) if state == "in_flight" else []


@pytest.mark.parametrize("state", ["ready", "in_flight", "deferred"])
def test_drop_by_content(broker, topic, connect, state):
    client, messages = hold(broker, topic, state, connect)
    found = change(broker, "drop", topic, state=state, filter="drop")
    assert found == {
        "topic": topic,
        "channel": "c",
        "state": state,
        "examined": 5,
        "changed": 3,
        "next": None,
        "note": None,
    }
    assert texts(broker, topic, state) == ["keep 0", "keep 2"]
    for message in messages:
        client.fin(message)
    if messages:  # those that were dropped are not in flight any more
        errors = [client.read_frame() for _ in range(3)]
        assert all(b"E_FIN_FAILED" in data for _, data in errors)
        client.barrier()
        channel = topic_stats(broker.http, topic)["channels"]["c"]
        assert (channel["in_flight_count"], channel["depth"]) == (0, 0)


@pytest.mark.parametrize("state", ["ready", "in_flight", "deferred"])
def test_from_a_time_on(broker, topic, connect, state):
    hold(broker, topic, state, connect)
    since_ns = sorted(message["timestamp"] for message in peek(broker, topic, state))[2]
    target = f"/channel/peek?topic={topic}&channel=c&state={state}&since={since_ns}"
    found = get(broker.http, target).json()
    assert [message["body"] for message in found["messages"]] == ["keep 2", "drop 3", "drop 4"]
    assert (found["scanned"], found["is_complete"]) == (5, True)
    changed = change(broker, "drop", topic, state=state, filter="drop", since=since_ns)
    assert (changed["changed"], changed["examined"]) == (2, 5)
    assert texts(broker, topic, state) == ["keep 0", "drop 1", "keep 2"]


@pytest.mark.parametrize("state", ["ready", "in_flight", "deferred"])
def test_requeue_by_id(broker, topic, connect, state):
    client, _ = hold(broker, topic, state, connect)
    shown = {message["body"]: message for message in peek(broker, topic, state)}
    ids = ",".join(shown[body]["id"] for body in ("drop 1", "drop 4"))
    if state == "in_flight":
        client.command("RDY", "0")
        client.barrier()
    assert change(broker, "requeue", topic, state=state, id=ids)["changed"] == 2
    after = peek(broker, topic)
    assert sorted(message["body"] for message in after[-2:]) == ["drop 1", "drop 4"]
    attempts = 1 if state == "in_flight" else 0
    assert [message["attempts"] for message in after[-2:]] == [attempts] * 2
    assert len(after) == (5 if state == "ready" else 2)
    # A second time finds them where they are now.
    again = change(broker, "requeue", topic, state=state, id=ids)
    assert again["changed"] == (2 if state == "ready" else 0)


@pytest.mark.parametrize("state", ["ready", "in_flight", "deferred"])
def test_copy_and_move(broker, topic, connect, state):
    hold(broker, topic, state, connect)
    make(broker, f"{topic}-to")
    assert (
        change(broker, "copy", topic, state=state, filter="keep", to=f"{topic}-to")["changed"] == 2
    )
    assert len(peek(broker, topic, state)) == 5
    assert (
        change(broker, "move", topic, state=state, filter="drop", to=f"{topic}-to")["changed"] == 3
    )
    assert texts(broker, topic, state) == ["keep 0", "keep 2"]
    moved = texts(broker, f"{topic}-to")
    assert moved[:2] == ["keep 0", "keep 2"] or state != "ready"
    assert sorted(moved) == sorted(body.decode() for body in BODIES)


def test_all_of_them_to_a_topic_that_is_made_for_it(broker, topic):
    publish(broker, topic, *BODIES)
    assert change(broker, "move", topic, filter="", to=f"{topic}-new")["changed"] == 5
    found = get(broker.http, f"/topic/peek?topic={topic}-new").json()
    assert [message["body"] for message in found["messages"]] == [body.decode() for body in BODIES]
    assert peek(broker, topic) == []


def test_a_page_is_where_ids_are_looked_for(broker, topic):
    """However far in the queue: `from` is where the page began."""
    bodies = b"\n".join(b"%d" % number for number in range(25_000))
    assert post(broker.http, f"/mpub?topic={topic}", bodies).status == 200
    place, number = "", 0
    while number < 200:
        more = f"&from={place}" if place else ""
        target = f"/channel/peek?topic={topic}&channel=c&limit=100&max_body=9{more}"
        page = get(broker.http, target).json()
        before, place, number = place, page["next"], number + 1
        if number == 200:
            break
    wanted = page["messages"][50]
    assert wanted["body"] == "19950"
    assert change(broker, "drop", topic, id=wanted["id"])["changed"] == 0
    found = change(broker, "drop", topic, id=wanted["id"], **{"from": before})
    assert found["changed"] == 1
    assert topic_stats(broker.http, topic)["channels"]["c"]["depth"] == 24_999


@pytest.mark.parametrize(("flags", "ends"), [((), "stop"), (DURABLE, "stop"), (DURABLE, "kill")])
@pytest.mark.parametrize("action", ["drop", "move", "requeue"])
def test_it_stays_so(tmp_path, action, flags, ends):
    """What was only in memory is lost by a kill in any case."""
    to = {"to": "u"} if action == "move" else {}
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        make(server, "t")
        make(server, "u")
        publish(server, "t", *BODIES)
        eventually(lambda: b'"u"' in (tmp_path / "nsqd.dat").read_bytes())
        assert change(server, action, "t", filter="drop", **to)["changed"] == 3
        getattr(server, ends)()
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        dropped = [body.decode() for body in BODIES if b"drop" in body]
        left = ["keep 0", "keep 2", *(dropped if action == "requeue" else [])]
        # A clean stop writes those before a finished one again, behind all others.
        assert sorted(texts(server, "t")) == sorted(left)
        assert texts(server, "u") == (dropped if action == "move" else [])


@pytest.mark.parametrize(
    ("action", "query", "status", "code"),
    [
        ("drop", "", 400, "MISSING_ARG_TOPIC"),
        ("drop", "topic=known&channel=unknown&filter=", 404, "CHANNEL_NOT_FOUND"),
        ("drop", "topic=known&channel=c", 400, "MISSING_ARG_FILTER"),
        ("drop", "topic=known&channel=c&id=", 400, "INVALID_ARG_ID"),
        ("drop", "topic=known&channel=c&id=0123456789ABCDEF", 400, "INVALID_ARG_ID"),
        ("drop", "topic=known&channel=c&id=" + "0123456789abcdef," * 101, 400, "INVALID_ARG_ID"),
        ("drop", "topic=known&channel=c&filter=" + "x" * 1025, 400, "INVALID_ARG_FILTER"),
        ("drop", "topic=known&channel=c&filter=&state=some", 400, "INVALID_ARG_STATE"),
        ("drop", "topic=known&channel=c&filter=&from=1-2-3", 400, "INVALID_ARG_FROM"),
        ("drop", "topic=known&channel=c&filter=&since=yesterday", 400, "INVALID_ARG_SINCE"),
        ("move", "topic=known&channel=c&filter=", 400, "MISSING_ARG_TO"),
        ("copy", "topic=known&channel=c&filter=&to=a%20b", 400, "INVALID_TOPIC"),
    ],
)
def test_what_is_refused(broker, action, query, status, code):
    make(broker, "known")
    answer = post(broker.http, f"/channel/messages/{action}?{query}")
    assert (answer.status, answer.json()) == (status, {"message": code})
    assert request(broker.http, "GET", f"/channel/messages/{action}?{query}").status == 405


def test_nothing_goes_to_a_broker_that_drains(tmp_path):
    with start_nsqd("nsqfast", tmp_path, "--http-drain") as server:
        make(server, "t")
        publish(server, "t", *BODIES)
        assert post(server.http, "/drain?timeout=60s").status == 200
        query = "topic=t&channel=c&filter=drop&to=u"
        answer = post(server.http, f"/channel/messages/move?{query}")
        assert (answer.status, answer.json()) == (503, {"message": "DRAINING"})
        assert change(server, "drop", "t", filter="")["changed"] == 5


def test_a_million_are_searched_in_parts(tmp_path):
    with start_nsqd("nsqfast", tmp_path, "--mem-queue-size=1000") as server:
        make(server, "t")
        block = b"\n".join(b"message %d" % number for number in range(100_000))
        for _ in range(10):
            assert post(server.http, "/mpub?topic=t", block).status == 200
        place, changed, examined = None, 0, 0
        while True:
            wanted = {"filter": "7"} | ({"from": place} if place else {})
            found = change(server, "drop", "t", **wanted)
            changed, examined = changed + found["changed"], examined + found["examined"]
            place = found["next"]
            if place is None:
                break
        expected = 10 * sum("7" in str(number) for number in range(100_000))
        assert (changed, examined) == (expected, 1_000_000)
        assert topic_stats(server.http, "t")["channels"]["c"]["depth"] == 1_000_000 - expected


@pytest.mark.parametrize("memory", [1000, 1_000_000])
def test_others_are_served_while_all_are_searched(tmp_path, memory):
    with start_nsqd("nsqfast", tmp_path, f"--mem-queue-size={memory}") as server:
        make(server, "t")
        block = b"\n".join(b"message %d" % number for number in range(100_000))
        for _ in range(5):
            assert post(server.http, "/mpub?topic=t", block).status == 200
        with Client(server.tcp) as client, ThreadPoolExecutor(1) as pool:
            served = 0
            while (
                served < 5
            ):  # a machine that is busy may let few of them come in one of the searches
                searching = pool.submit(change, server, "copy", "t", filter="nowhere", to="u")
                served = 0
                while not searching.done():
                    client.pub("other", b"x")
                    served += not searching.done()
                assert searching.result()["examined"] > 0
