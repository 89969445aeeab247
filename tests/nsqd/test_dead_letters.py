"""max_failures, dead_letter_topic, REJ and DEATHS: what fails goes to a topic, with what is known of it beside it."""

import contextlib
import json
import sqlite3
import time

import pytest

from support.server import start_nsqd
from support.waiting import eventually
from support.web import get, post, request, stats, topic_stats
from support.wire import Client

IDENTITY = json.dumps(
    {"client_id": "worker-7", "hostname": "h", "feature_negotiation": True, "reject": True}
).encode()


@pytest.fixture
def broker(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        yield server


def put(broker, name="dead", *, dry_run=False, topic="^t$", **definition):
    target = f"/policies/{name}" + ("?dry_run=true" if dry_run else "")
    policy = {"topic": topic, "definition": definition}
    return request(broker.http, "PUT", target, json.dumps(policy).encode())


def make(broker, *bodies, topic="t", channel="c"):
    post(broker.http, f"/topic/create?topic={topic}")
    post(broker.http, f"/channel/create?topic={topic}&channel={channel}")
    for body in bodies:
        assert post(broker.http, f"/pub?topic={topic}", body).status == 200


def consume(broker, topic="t", channel="c", rdy=10):
    client = Client(broker.tcp)
    client.command("IDENTIFY", body=IDENTITY)
    assert json.loads(client.read_response())["reject"] is True
    client.sub(topic, channel, rdy)
    return client


def peek(broker, topic="t.c.dead"):
    found = get(broker.http, f"/topic/peek?topic={topic}").json()
    return found.get("messages", [])


def deaths(broker, count, topic="t.c.dead"):
    """Of the topic's dead letters, when all of them are known."""

    def known():
        found = peek(broker, topic)
        return len(found) == count and all("death" in each for each in found)

    eventually(known)
    return peek(broker, topic)


def test_what_is_known_of_it(broker):
    make(broker, b"body", topic="t")
    put(broker, max_failures=2)
    with consume(broker) as client:
        first = client.read_message()
        client.command("REQ", first.id.decode(), "0", "ValueError: first")
        client.command("REQ", client.read_message().id.decode(), "0", "ValueError: no such user 17")
        (letter,) = deaths(broker, 1)
        now_ns = time.time_ns()
        death = letter["death"]
        assert letter["body"] == "body"
        assert letter["attempts"] == 0
        assert first.timestamp_ns == death.pop("published")
        assert first.timestamp_ns < death.pop("died") < now_ns
        assert death == {
            "reason": "failed",
            "topic": "t",
            "channel": "c",
            "failures": 2,
            "attempts": 2,
            "client": "worker-7",
            "error": "ValueError: no such user 17",
            "first_id": first.id.decode(),
        }
        channel = topic_stats(broker.http, "t")["channels"]["c"]
        assert channel["dead_letter_topic"] == "t.c.dead"
        assert channel["dead_letter_counts"] == {"failed": 1}
    assert topic_stats(broker.http, "t.c.dead")["has_dead_letters"] is True
    assert b'nsq_dead_letters_total{reason="failed"} 1.0' in get(broker.http, "/metrics").body


def test_rejected(broker):
    """It needs no policy."""
    make(broker, b"a", b"b")
    with consume(broker) as client:
        first, second = client.read_messages(2)
        client.command("REJ", first.id.decode(), "spaces are part of it")
        client.command("REJ", second.id.decode())
        client.barrier()
        letters = deaths(broker, 2)
        assert [each["death"]["reason"] for each in letters] == ["rejected"] * 2
        assert [each["death"]["error"] for each in letters] == ["spaces are part of it", ""]
        client.command("REJ", second.id.decode())
        assert client.read_error() == b"E_REJ_FAILED REJ %s failed ID not in flight" % second.id
        client.barrier()
    make(broker, topic="t.c.dead", channel="again")
    with consume(broker, "t.c.dead", "again", 1) as client:
        message = client.read_message()
        client.command("REJ", message.id.decode())
        assert client.read_error() == b"E_REJ_FAILED REJ %s failed it is a dead letter" % message.id
        client.fin(message)


def test_who_did_not_negotiate_it(broker):
    make(broker, b"a")
    put(broker, max_failures=1)
    with Client(broker.tcp) as client:
        client.command("IDENTIFY", body=b'{"feature_negotiation": true}')
        assert "reject" not in json.loads(client.read_response())
        client.sub("t", "c", 1)
        # As for Go's nsqd, what is behind the delay means nothing.
        client.command("REQ", client.read_message().id.decode(), "0", "why")
        (letter,) = deaths(broker, 1)
        assert letter["death"]["error"] == ""
        client.command("REJ", "0" * 16)
        assert client.read_error() == b"E_INVALID invalid command REJ"
    with Client(broker.tcp) as client:
        client.sub("t.c.dead", "c", 1)
        client.command("DEATHS", body=client.read_message().id)
        assert client.read_error() == b"E_INVALID invalid command DEATHS"


def ask(client, ids):
    """What is known of them, as its consumer is told."""
    client.command("DEATHS", body=b"".join(ids))
    return json.loads(client.read_response())


def test_its_consumer_is_told(broker):
    make(broker, *[b"%d" % number for number in range(3)])
    with consume(broker) as client:
        for message in client.read_messages(3):
            client.command("REJ", message.id.decode(), b"error " + message.body)
        client.barrier()
    known = {each["id"]: each["death"] for each in deaths(broker, 3)}
    with consume(broker, "t.c.dead", "archive") as client:
        messages = client.read_messages(3)
        assert ask(client, [each.id for each in messages]) == known
        assert known[messages[1].id.decode()]["error"] == "error 1"
        # What is known of some, asked twice, and while it closes.
        unknown = [b"0" * 16, b"f" * 16]
        last = messages[2].id
        client.command("CLS")
        assert client.read_response() == b"CLOSE_WAIT"
        assert ask(client, [*unknown, last, last]) == {last.decode(): known[last.decode()]}
        assert ask(client, unknown * 250) == {}
        # Commands behind it wait.
        client.command("DEATHS", body=last)
        client.command("DEATHS", body=last)
        for message in messages:
            client.fin(message)
        assert [len(json.loads(client.read_response())) for _ in "12"] == [1, 1]
        client.barrier()
    assert topic_stats(broker.http, "t.c.dead")["channels"]["archive"]["depth"] == 0
    with consume(broker, "t", "c") as client:
        assert ask(client, [last]) == {}, "they are another topic's"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", b"E_BAD_BODY DEATHS invalid body size 0"),
        (b"0" * 16 * 501, b"E_BAD_BODY DEATHS body too big 8016 > 8000"),
        (b"0" * 17, b"E_INVALID DEATHS invalid message ID"),
        (b"G" * 16, b"E_INVALID DEATHS invalid message ID"),
    ],
)
def test_bad_questions(broker, body, error):
    make(broker)
    with consume(broker) as client:
        client.command("DEATHS", body=body)
        assert client.read_error() == error
        assert client.read_to_end() == b""


def test_who_has_not_subscribed(broker):
    with Client(broker.tcp) as client:
        client.command("IDENTIFY", body=IDENTITY)
        client.read_response()
        client.command("DEATHS", body=b"0" * 16)
        assert client.read_error() == b"E_INVALID cannot DEATHS in current state"


def test_who_leaves_without_an_answer(broker):
    """The database is busy meanwhile, with the questions of others."""
    make(broker, b"a")
    with consume(broker) as client:
        client.command("REJ", client.read_message().id.decode())
        client.barrier()
    (letter,) = deaths(broker, 1)
    last = letter["id"].encode()
    with consume(broker, "t.c.dead", "archive") as patient:
        for _ in range(20):
            with consume(broker, "t.c.dead", "other") as client:
                client.command("DEATHS", body=last * 500)
        assert list(ask(patient, [last])) == [last.decode()]
    eventually(
        lambda: not topic_stats(broker.http, "t.c.dead")["channels"]["other"]["client_count"]
    )


@pytest.mark.parametrize("bad", [b"x" * 5000, b"\xff\x00\x1b[31m", "über".encode()])
def test_errors_of_all_kinds(broker, bad):
    make(broker, b"a")
    with consume(broker) as client:
        client.command("REJ", client.read_message().id.decode(), bad)
        (letter,) = deaths(broker, 1)
        assert letter["death"]["error"] == bad[:256].decode(errors="replace")


def test_a_restart(tmp_path):
    """What is known is kept, and the topic knows that it has dead letters."""
    with start_nsqd("nsqfast", tmp_path) as broker:
        make(broker, b"a")
        with consume(broker) as client:
            client.command("REJ", client.read_message().id.decode(), "why")
            client.barrier()
    with start_nsqd("nsqfast", tmp_path) as broker:
        assert topic_stats(broker.http, "t.c.dead")["has_dead_letters"] is True
        (letter,) = deaths(broker, 1)
        assert letter["death"]["error"] == "why"
        post(broker.http, "/topic/delete?topic=t.c.dead")
        make(broker, b"b", topic="t.c.dead")
        assert (
            "death"
            not in get(broker.http, "/channel/peek?topic=t.c.dead&channel=c").json()["messages"][0]
        )
        assert "has_dead_letters" not in topic_stats(broker.http, "t.c.dead")


@pytest.mark.parametrize("content", [b"no database", b""])
def test_a_broken_file(tmp_path, content):
    """It is kept aside, and what dies from now on is known."""
    (tmp_path / "deaths.sqlite").write_bytes(content * 1000)
    with start_nsqd("nsqfast", tmp_path) as broker:
        make(broker, b"a")
        with consume(broker) as client:
            client.command("REJ", client.read_message().id.decode(), "why")
            deaths(broker, 1)
    aside = tmp_path / "deaths.sqlite.bad"
    assert aside.exists() == bool(content)


def test_a_damaged_row(tmp_path):
    """Nothing is known of those in it, which one line in the log says."""
    with start_nsqd("nsqfast", tmp_path) as broker:
        make(broker, b"a")
        with consume(broker) as client:
            client.command("REJ", client.read_message().id.decode(), "why")
            deaths(broker, 1)
    with contextlib.closing(sqlite3.connect(tmp_path / "deaths.sqlite")) as base, base:
        base.execute("UPDATE deaths SET packed = substr(packed, 1, 10)")
    with start_nsqd("nsqfast", tmp_path) as broker:
        (letter,) = peek(broker)
        assert "death" not in letter
        with consume(broker, "t.c.dead") as client:
            assert ask(client, [letter["id"].encode()]) == {}
        eventually(lambda: len([line for line in broker.lines if "DEATHS" in line]) == 2)
        said = [line for line in broker.lines if "DEATHS" in line]
    assert all("deaths.sqlite is damaged" in line for line in said)
    assert not any("Traceback" in line for line in broker.lines)


def test_many_die_at_once(broker):
    make(broker)
    put(broker, max_failures=1, dead_letter_topic="graves")
    count = 5000
    post(broker.http, "/mpub?topic=t", b"\n".join(b"%d" % number for number in range(count)))
    with consume(broker, rdy=2500) as client:
        for number in range(count):
            client.command("REQ", client.read_message().id.decode(), "0", f"{number} {'x' * 200}")
        client.barrier()
    eventually(lambda: topic_stats(broker.http, "graves")["depth"] == count)

    def has_all():
        target = "/topic/peek?topic=graves&limit=100&offset="
        found = [
            each
            for offset in range(0, count, 100)
            for each in get(broker.http, f"{target}{offset}").json()["messages"]
        ]
        known = [each for each in found if "death" in each]
        errors = [each["death"]["error"].split()[0] for each in known]
        return len(known) == count and errors == [each["body"] for each in known]

    eventually(has_all)


@pytest.mark.parametrize(
    ("definition", "error"),
    [
        ({"max_failures": 0}, "max_failures has to be a number from 1 to 100"),
        ({"max_failures": 101}, "max_failures has to be a number from 1 to 100"),
        ({"max_failures": True}, "max_failures has to be a number from 1 to 100"),
        ({"dead_letter_topic": "no name"}, "dead_letter_topic has to be the name of another topic"),
        (
            {"dead_letter_topic": "d#ephemeral"},
            "dead_letter_topic has to be the name of another topic",
        ),
        ({"dead_letter_topic": "{who}"}, "dead_letter_topic has to be the name of another topic"),
        ({"dead_letter_topic": "{topic}"}, "dead_letter_topic has to be the name of another topic"),
        ({"dead_letter_topic": 7}, "dead_letter_topic has to be the name of another topic"),
    ],
)
def test_bad_definitions(broker, definition, error):
    answer = put(broker, **definition)
    assert answer.status == 400
    assert answer.json()["reason"].startswith(f"policy dead: {error}")


def test_names_that_are_too_long(broker):
    topic, channel = "t" * 40, "c" * 30
    make(broker, topic=topic, channel=channel)
    answer = put(broker, topic="", max_failures=1)
    assert answer.status == 400
    assert f"{topic}.{channel}.dead" in answer.json()["reason"]
    assert get(broker.http, "/policies").json()["policies"] == []
    assert put(broker, topic="", max_failures=1, dead_letter_topic="{topic}.dead").status == 200


def test_dead_letters_do_not_go_round(broker):
    make(broker, topic="a")
    make(broker, topic="b")
    assert put(broker, "one", topic="^a$", max_failures=1, dead_letter_topic="b").status == 200
    answer = put(broker, "other", topic="^b$", max_failures=1, dead_letter_topic="a")
    assert (answer.status, answer.json()["reason"]) == (
        400,
        "dead letters would go round: a, b, a",
    )


def test_one_place_for_all(broker):
    """A policy may match the topic that takes the dead letters: nothing dies there."""
    make(broker, topic="graves")
    assert put(broker, topic="", max_failures=1, dead_letter_topic="graves").status == 200
    post(broker.http, "/pub?topic=graves", b"x")
    with consume(broker, "graves", rdy=1) as client:
        for attempts in range(1, 5):
            message = client.read_message()
            assert message.attempts == attempts
            client.command("REQ", message.id.decode(), "0")


def test_what_was_not_tried_has_not_failed(broker):
    make(broker, b"a")
    put(broker, max_failures=1, retry_min="1h")
    with consume(broker, rdy=1) as client:
        for attempts in range(1, 4):
            message = client.read_message()
            assert message.attempts == attempts
            client.command("REQ", message.id.decode(), "0", "-")
        client.command("REQ", client.read_message().id.decode(), "0", "why")
        (letter,) = deaths(broker, 1)
    assert letter["death"]["failures"] == 1


def test_many_at_once_leave_batches_small(tmp_path):
    """The answers of other clients come with a batch of the commit log, which has the bodies of those that die."""
    with start_nsqd("nsqfast", tmp_path, "--durable=always", "--max-rdy-count=3000") as broker:
        make(broker)
        put(broker, max_failures=1)
        for _ in range(3):
            assert (
                post(broker.http, "/mpub?topic=t", b"\n".join([b"x" * 1000] * 1000)).status == 200
            )
        with consume(broker, rdy=3000) as client:
            ids = [message.id for message in client.read_messages(3000)]
            before = stats(broker.http)["commit_log"]
            client.send(b"".join(b"REQ %s 0\n" % each for each in ids))
            eventually(lambda: topic_stats(broker.http, "t.c.dead")["depth"] == 3000)
            after = stats(broker.http)["commit_log"]
    size = after["commit_bytes"] - before["commit_bytes"]
    assert size > 3_000_000
    assert size / (after["commit_count"] - before["commit_count"]) < 200_000
