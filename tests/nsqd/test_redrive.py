"""/channel/redrive: dead letters go back to where they died, and a restart goes on with that."""

import json
from urllib.parse import quote

import pytest

from support.server import start_nsqd
from support.waiting import eventually
from support.web import get, post, request, topic_stats
from support.wire import Client

BAD_RATE = (
    b'{"redrives": [{"topic": "t", "channel": "c", "source": "t.c.dead", "source_channel": "",'
    b' "rate": "x", "limit": 0, "filter": ""}]}'
)
PAGE = "/channel/redrive?topic=t&channel=c"


@pytest.fixture
def broker(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        yield server


def make(broker, topic="t", *channels):
    post(broker.http, f"/topic/create?topic={topic}")
    for channel in channels:
        post(broker.http, f"/channel/create?topic={topic}&channel={channel}")


def publish(broker, topic, count):
    bodies = b"\n".join(b"%d" % number for number in range(count))
    assert post(broker.http, f"/mpub?topic={topic}", bodies).status == 200


def start(broker, **values):
    more = "".join(f"&{key.rstrip('_')}={value}" for key, value in values.items())
    return post(broker.http, PAGE + more)


def ended(broker):
    def is_over():
        return get(broker.http, PAGE).json()["state"] != "running"

    eventually(is_over)
    return get(broker.http, PAGE).json()


def depth(broker, topic="t", channel="c"):
    found = topic_stats(broker.http, topic)
    return (found["channels"][channel] if channel else found)["depth"]


def test_all(broker):
    make(broker, "t", "c", "untouched")
    publish(broker, "t.c.dead", 1000)
    order = start(broker).json()
    assert (order["topic"], order["channel"], order["source"]) == ("t", "c", "t.c.dead")
    order = ended(broker)
    assert (order["state"], order["moved"], order["left"]) == ("done", 1000, 0)
    assert (depth(broker), depth(broker, channel="untouched")) == (1000, 0)
    assert depth(broker, "t.c.dead", "") == 0


def test_some(broker):
    make(broker, "t", "c")
    publish(broker, "t.c.dead", 100)
    start(broker, limit=10)
    assert ended(broker)["moved"] == 10
    start(broker, filter="9")
    assert ended(broker)["moved"] == 18
    assert (depth(broker), depth(broker, "t.c.dead", "")) == (28, 72)


def test_those_that_a_search_finds(broker):
    """In memory and on disk, sent back and deleted; those that wait stay as they are."""
    make(broker, "t", "c")
    bodies = [
        b'{"user": {"id": %d}, "status": "%s"}' % (n % 10, b"failed" if n % 2 else b"late")
        for n in range(100)
    ]
    assert (
        post(broker.http, "/mpub?topic=t.c.dead", b"\n".join([*bodies, b"user.id:3"])).status == 200
    )
    search = quote("status:failed user.id:3")
    found = get(broker.http, f"/topic/peek?topic=t.c.dead&search={search}").json()
    assert [message["body"].encode() for message in found["messages"]] == bodies[3::10]
    assert start(broker, search=search).json()["search"] == "status:failed user.id:3"
    assert ended(broker)["moved"] == 10
    start(broker, search="status:late", delete="true", filter="8")
    assert ended(broker)["moved"] == 10
    assert (depth(broker), depth(broker, "t.c.dead", "")) == (10, 81)


def test_a_rate_and_its_end(broker):
    make(broker, "t", "c")
    publish(broker, "t.c.dead", 1000)
    start(broker, rate=1)
    answer = start(broker)
    assert (answer.status, answer.json()["message"]) == (409, "REDRIVE_RUNNING")
    eventually(lambda: get(broker.http, PAGE).json()["moved"] >= 1)
    cancelled = post(broker.http, "/channel/redrive/cancel?topic=t&channel=c").json()
    assert cancelled["state"] == "cancelled"
    assert 1 <= depth(broker) <= cancelled["moved"] < 500
    assert start(broker).status == 200
    ended(broker)
    assert depth(broker) == 1000


def begin_and_stop(folder, later=0, **wish):
    """Some of a thousand are moved, and so many die then; what the next start goes on with has no rate any more."""
    with start_nsqd("nsqfast", folder) as broker:
        make(broker, "t", "c")
        publish(broker, "t.c.dead", 1000)
        start(broker, rate=1, **wish)
        eventually(lambda: get(broker.http, PAGE).json()["moved"] >= 1)
        publish(broker, "t.c.dead", later)
    path = folder / "redrives.json"
    kept = json.loads(path.read_bytes())
    assert 1 <= kept["redrives"][0]["moved"] < 500
    kept["redrives"][0]["rate"] = 0
    path.write_text(json.dumps(kept))
    return path


def test_a_restart_goes_on(tmp_path):
    path = begin_and_stop(tmp_path, limit=900)
    with start_nsqd("nsqfast", tmp_path) as broker:
        assert ended(broker)["moved"] == 900
        assert (depth(broker), depth(broker, "t.c.dead", "")) == (900, 100)
        eventually(lambda: json.loads(path.read_bytes())["redrives"] == [])


def test_all_are_deleted(tmp_path):
    """For ever: they are not there after a restart either."""
    with start_nsqd("nsqfast", tmp_path) as broker:
        make(broker, "t", "c")
        publish(broker, "t.c.dead", 1000)
        assert start(broker, delete="true").json()["delete"] is True
        order = ended(broker)
        assert (order["state"], order["moved"], order["left"]) == ("done", 1000, 0)
        assert (depth(broker), depth(broker, "t.c.dead", "")) == (0, 0)
    with start_nsqd("nsqfast", tmp_path) as broker:
        assert (depth(broker), depth(broker, "t.c.dead", "")) == (0, 0)


def test_some_are_deleted(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as broker:
        make(broker, "t", "c")
        publish(broker, "t.c.dead", 100)
        start(broker, delete="true", filter="9")
        assert ended(broker)["moved"] == 19
        assert depth(broker, "t.c.dead", "") == 81
    with start_nsqd("nsqfast", tmp_path) as broker:
        start(broker)
        assert ended(broker)["moved"] == 81
        with Client(broker.tcp) as client:
            client.sub("t", "c", 81)
            found = {message.body for message in client.read_messages(81)}
    assert found == {b"%d" % number for number in range(100) if "9" not in str(number)}


def test_a_delete_that_is_cancelled(broker):
    make(broker, "t", "c")
    publish(broker, "t.c.dead", 1000)
    start(broker, delete="true", rate=1)
    eventually(lambda: get(broker.http, PAGE).json()["moved"] >= 1)
    order = post(broker.http, "/channel/redrive/cancel?topic=t&channel=c").json()
    assert (order["state"], order["delete"]) == ("cancelled", True)
    assert (depth(broker), depth(broker, "t.c.dead", "")) == (0, 1000 - order["moved"])


def test_a_restart_goes_on_with_a_delete(tmp_path):
    """What died meanwhile stays."""
    begin_and_stop(tmp_path, later=7, delete="true")
    with start_nsqd("nsqfast", tmp_path) as broker:
        assert ended(broker)["moved"] == 1000
        assert (depth(broker), depth(broker, "t.c.dead", "")) == (0, 7)


def test_those_of_a_reason(broker):
    """What nobody knows anything of stays."""
    make(broker, "t", "c")
    policy = {"topic": "^t$", "definition": {"max_failures": 1}}
    request(broker.http, "PUT", "/policies/dead", json.dumps(policy).encode())
    publish(broker, "t", 150)
    with Client(broker.tcp) as client:
        client.command("IDENTIFY", body=b'{"feature_negotiation": true, "reject": true}')
        client.read_response()
        client.sub("t", "c", 150)
        for number, message in enumerate(client.read_messages(150)):
            command = (
                ("REQ", message.id.decode(), "0") if number % 3 else ("REJ", message.id.decode())
            )
            client.command(*command)
        client.barrier()
    post(broker.http, "/pub?topic=t.c.dead", b"a stranger")
    start(broker, delete="true", reason="rejected")
    assert ended(broker)["moved"] == 50
    start(broker, reason="failed")
    assert ended(broker)["moved"] == 100
    assert (depth(broker), depth(broker, "t.c.dead", "")) == (100, 1)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"redrives": [{"topic": 1}]}', BAD_RATE])
def test_a_broken_file(tmp_path, content):
    (tmp_path / "redrives.json").write_bytes(content)
    with start_nsqd("nsqfast", tmp_path) as broker:
        make(broker, "t", "c")
        publish(broker, "t.c.dead", 1)
        start(broker)
        assert ended(broker)["moved"] == 1
    assert (tmp_path / "redrives.json.bad").read_bytes() == content


def test_two_channels_share_a_topic(broker):
    """Only what died in the channel goes back to it."""
    make(broker, "t", "c", "d")
    policy = {"topic": "^t$", "definition": {"max_failures": 1, "dead_letter_topic": "graves"}}
    request(broker.http, "PUT", "/policies/dead", json.dumps(policy).encode())
    publish(broker, "t", 250)
    for channel in "cd":
        with Client(broker.tcp) as client:
            client.sub("t", channel, 250)
            for message in client.read_messages(250):
                client.command("REQ", message.id.decode(), "0")
            client.barrier()
    assert depth(broker, "graves", "") == 500
    post(broker.http, "/pub?topic=graves", b"a stranger")
    start(broker)
    assert ended(broker)["moved"] == 250
    assert (depth(broker), depth(broker, channel="d"), depth(broker, "graves", "")) == (250, 0, 251)


def test_dead_letters_of_a_channel(broker):
    make(broker, "t", "c")
    make(broker, "t.c.dead", "one")
    publish(broker, "t.c.dead", 5)
    start(broker)
    assert ended(broker)["source_channel"] == "one"
    make(broker, "t.c.dead", "one", "two")
    assert start(broker).json()["message"] == "MISSING_ARG_FROM"
    assert start(broker, from_="three").json()["message"] == "CHANNEL_NOT_FOUND"
    publish(broker, "t.c.dead", 5)
    start(broker, from_="two")
    assert ended(broker)["moved"] == 5
    assert (depth(broker), depth(broker, "t.c.dead", "one")) == (10, 5)


def test_a_channel_that_is_deleted_meanwhile(broker):
    make(broker, "t", "c")
    publish(broker, "t.c.dead", 100)
    start(broker, rate=1)
    post(broker.http, "/channel/delete?topic=t&channel=c")
    order = ended(broker)
    assert (order["state"], order["error"]) == ("failed", "the channel is deleted")
    assert depth(broker, "t.c.dead", "") >= 99


def test_dead_letters_that_are_deleted_meanwhile(tmp_path):
    """In memory and on disk."""
    with start_nsqd("nsqfast", tmp_path, "--mem-queue-size=10") as broker:
        make(broker, "t", "c")
        publish(broker, "t.c.dead", 100)
        start(broker, rate=1)
        post(broker.http, "/topic/delete?topic=t.c.dead")
        order = ended(broker)
        assert (order["state"], order["error"]) == ("failed", "the dead letters are deleted")


@pytest.mark.parametrize(
    ("values", "status", "code"),
    [
        ({"rate": "x"}, 400, "INVALID_ARG_RATE"),
        ({"rate": "-1"}, 400, "INVALID_ARG_RATE"),
        ({"rate": "1e9"}, 400, "INVALID_ARG_RATE"),
        ({"rate": "99999999"}, 400, "INVALID_ARG_RATE"),
        ({"limit": "x"}, 400, "INVALID_ARG_LIMIT"),
        ({"search": "a:"}, 400, "INVALID_ARG_SEARCH"),
        ({"search": "x" * 1025}, 400, "INVALID_ARG_SEARCH"),
        ({"delete": "yes"}, 400, "INVALID_ARG_DELETE"),
        ({"delete": ""}, 400, "INVALID_ARG_DELETE"),
        ({"delete": "true", "limit": "1"}, 400, "INVALID_ARG_LIMIT"),
        ({"reason": "boredom"}, 400, "INVALID_ARG_REASON"),
        ({"filter": "x" * 1025}, 400, "INVALID_ARG_FILTER"),
        ({}, 404, "NO_DEAD_LETTERS"),
    ],
)
def test_bad_requests(broker, values, status, code):
    make(broker, "t", "c")
    answer = start(broker, **values)
    assert (answer.status, answer.json()["message"]) == (status, code)
    assert get(broker.http, PAGE).json() == {"message": "NO_REDRIVE"}


def test_what_is_not_there(broker):
    assert start(broker).json()["message"] == "TOPIC_NOT_FOUND"
    make(broker, "t")
    assert start(broker).json()["message"] == "CHANNEL_NOT_FOUND"
    answer = post(broker.http, "/channel/redrive/cancel?topic=t&channel=c")
    assert (answer.status, answer.json()["message"]) == (404, "NO_REDRIVE")
