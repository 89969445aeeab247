"""POST /drain: new messages are refused, consumers finish what is there, and then the broker stops."""

import asyncio
import json
import subprocess
import time

import pytest

from nsqfast.client import Consumer, Producer
from support.lookup import nodes, topics
from support.lookupd import FakeLookupd
from support.prometheus import scrape
from support.server import DRAINED, go_program, start_nsqd, start_nsqlookupd
from support.waiting import wait_until
from support.web import get, post, request, stats, topic_stats
from support.wire import Client, encode_messages

SECONDS_MAX = 50


@pytest.fixture
def broker(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    with start_nsqd("nsqfast", folder, "--http-drain") as server:
        yield server


@pytest.fixture
def other(tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    with start_nsqd("nsqfast", folder, "--http-drain") as server:
        yield server


def text_of(address):
    return f"{address[0]}:{address[1]}"


def make_queue(broker, count, topic="t", channel="c"):
    """A channel with so many messages."""
    assert post(broker.http, f"/topic/create?topic={topic}").status == 200
    assert post(broker.http, f"/channel/create?topic={topic}&channel={channel}").status == 200
    for number in range(count):
        assert post(broker.http, f"/pub?topic={topic}", b"%d" % number).status == 200


def begin(broker, query="?deadline=10m"):
    answer = post(broker.http, f"/drain{query}")
    assert answer.status == 200, answer
    return answer.json()


def left(count, held=0, reason="no consumers", channel="c"):
    """What is shown of so many messages, of which nobody gets some."""
    holder = {"topic": "t", "channel": channel, "messages": held, "reason": reason}
    return {"messages": count, "held": held, "held_by": [holder] if held else []}


def wait_for_end(server):
    assert server.process.wait(SECONDS_MAX) == DRAINED


# -- refusals


@pytest.mark.parametrize(
    ("command", "params", "body"),
    [
        ("PUB", ["t"], b"x"),
        ("DPUB", ["t", "1000"], b"x"),
        ("MPUB", ["t"], encode_messages([b"x", b"y"])),
        ("PUB", ["new"], b"x"),
    ],
)
def test_publishes_over_tcp_are_refused(broker, command, params, body):
    make_queue(broker, 1)
    begin(broker)
    with Client(broker.tcp) as client:
        client.command(command, *params, body=body)
        assert client.read_error() == f"E_{command}_FAILED {command} failed draining".encode()
        # As after every such error, so that the client looks for another broker.
        assert client.read_to_end() == b""
    assert topic_stats(broker.http, "t")["channels"]["c"]["depth"] == 1
    assert topic_stats(broker.http, "new") is None


def test_a_client_that_is_connected_already_is_refused_too(broker):
    make_queue(broker, 1)
    with Client(broker.tcp) as client:
        client.pub("t", b"x")
        begin(broker)
        client.command("PUB", "t", body=b"y")
        assert client.read_error() == b"E_PUB_FAILED PUB failed draining"
    assert topic_stats(broker.http, "t")["channels"]["c"]["depth"] == 2


@pytest.mark.parametrize(
    "path", ["/pub?topic=t", "/pub?topic=t&defer=5", "/mpub?topic=t", "/pub?topic=new"]
)
def test_publishes_over_http_are_refused(broker, path):
    make_queue(broker, 1)
    begin(broker)
    answer = post(broker.http, path, b"x")
    assert (answer.status, answer.json()) == (503, {"message": "DRAINING"})
    assert topic_stats(broker.http, "t")["channels"]["c"]["depth"] == 1
    assert topic_stats(broker.http, "new") is None


def test_a_durable_broker_refuses_too(tmp_path):
    with start_nsqd(
        "nsqfast", tmp_path, "--http-drain", "--mem-queue-size=0", "--sync-every=1"
    ) as broker:
        make_queue(broker, 1)
        begin(broker)
        assert post(broker.http, "/pub?topic=t", b"x").status == 503
        with Client(broker.tcp) as client:
            client.command("PUB", "t", body=b"x")
            assert client.read_error() == b"E_PUB_FAILED PUB failed draining"


# -- what it shows


def test_it_says_so_everywhere(broker):
    make_queue(broker, 2)
    assert get(broker.http, "/drain").json() == {"draining": False, **left(2, 2)}
    assert get(broker.http, "/readyz")[::2] == (200, b"OK")
    assert get(broker.http, "/info").json()["draining"] is False
    assert scrape(broker.http).value("nsqd_draining") == 0
    assert "drain" not in stats(broker.http)
    before_s = int(time.time())
    found = begin(broker)
    assert found == get(broker.http, "/drain").json()
    assert found.items() >= {"draining": True, **left(2, 2)}.items()
    assert before_s <= found["since"] <= time.time()
    assert found["deadline"] - found["since"] == pytest.approx(600, abs=1)
    ping = get(broker.http, "/ping")
    assert (ping.status, ping.body) == (503, b"NOK - draining")
    assert get(broker.http, "/readyz")[::2] == (503, b"NOK - draining")
    assert get(broker.http, "/livez")[::2] == (200, b"OK")
    assert get(broker.http, "/info").json()["draining"] is True
    assert scrape(broker.http).value("nsqd_draining") == 1
    assert scrape(broker.http).value("nsqd_healthy") == 1
    shown = stats(broker.http)
    assert shown["health"] == "OK"
    times = {"since": found["since"], "deadline": found["deadline"]}
    assert shown["drain"] == {**times, **left(2, 2)}
    assert b"\nHealth: OK\nDraining: since 2" in get(broker.http, "/stats").body
    broker.wait_for_line("DRAIN: new messages are refused from now on; it stops when all messages")


@pytest.mark.parametrize("query", ["?deadline=", "?deadline=10", "?deadline=-1s", "?deadline=soon"])
def test_a_wrong_deadline_begins_nothing(broker, query):
    answer = post(broker.http, f"/drain{query}")
    assert (answer.status, answer.json()) == (400, {"message": "INVALID_DEADLINE"})
    assert get(broker.http, "/ping").body == b"OK"


def test_it_is_for_operators(tmp_path):
    listeners = ("TCP", "HTTP", "HTTP-ADMIN")
    with start_nsqd(
        "nsqfast", tmp_path, "--http-admin-address=127.0.0.1:0", listeners=listeners
    ) as broker:
        make_queue(broker, 1)
        for path in ("/drain", "/drain/cancel"):
            assert post(broker.http, path).json() == {"message": "ADMIN_ADDRESS_ONLY"}
        assert post(broker.addresses["HTTP-ADMIN"], "/drain").status == 200
        assert get(broker.http, "/drain").json()["draining"] is True
        assert post(broker.addresses["HTTP-ADMIN"], "/drain/cancel").status == 200


def test_it_has_to_be_allowed(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as broker:
        for path in ("/drain", "/drain/cancel"):
            answer = post(broker.http, path)
            assert (answer.status, answer.json()) == (403, {"message": "DRAIN_NOT_ALLOWED"})
            broker.wait_for_line("--http-drain allows it, or --http-admin-address")
        assert get(broker.http, "/drain").json()["draining"] is False
        assert scrape(broker.http).value("nsq_refused_total", reason="drain") == 2


# -- how it ends


def test_it_stops_when_all_is_delivered(broker):
    make_queue(broker, 3)
    with Client(broker.tcp) as client:
        client.sub("t", "c", 1)
        begin(broker, query="")
        for number in range(3):
            message = client.read_message()
            assert message.body == b"%d" % number
            assert broker.process.poll() is None
            client.fin(message)
        wait_for_end(broker)
    broker.wait_for_line("DRAIN: all messages are delivered; stopping")


def test_messages_in_flight_and_deferred_are_waited_for(broker):
    make_queue(broker, 1)
    with Client(broker.tcp) as client:
        client.sub("t", "c", 1)
        message = client.read_message()
        begin(broker)
        assert get(broker.http, "/drain").json()["messages"] == 1
        client.command("REQ", message.id, "300")
        message = client.read_message()
        assert message.attempts == 2
        assert broker.process.poll() is None
        client.fin(message)
        wait_for_end(broker)


def test_it_stops_at_the_deadline_and_keeps_what_is_left(broker, tmp_path):
    make_queue(broker, 3)
    begin(broker, "?deadline=100ms")
    wait_for_end(broker)
    broker.wait_for_line("DRAIN: the deadline has passed, 3 messages are kept; stopping")
    with start_nsqd("nsqfast", tmp_path / "data") as again, Client(again.tcp) as client:
        assert get(again.http, "/ping").body == b"OK"
        client.sub("t", "c", 3)
        assert [message.body for message in client.read_messages(3)] == [b"0", b"1", b"2"]


def test_what_is_paused_or_without_consumers_is_named(broker):
    make_queue(broker, 3)
    with Client(broker.tcp) as client:
        client.sub("t", "c", 0)
        assert get(broker.http, "/drain").json() == {"draining": False, **left(3)}
        assert post(broker.http, "/channel/pause?topic=t&channel=c").status == 200
        begin(broker, query="")
        broker.wait_for_line(
            "DRAIN: 3 messages are left, and nobody gets 3 of them: t/c (paused, 3)"
        )
        assert get(broker.http, "/drain").json().items() >= left(3, 3, "paused").items()
        assert post(broker.http, "/channel/unpause?topic=t&channel=c").status == 200
        client.command("RDY", "1")
        message = client.read_message()
        assert get(broker.http, "/drain").json().items() >= left(3).items()
        client.fin(message)
        for _ in range(2):
            client.fin(client.read_message())
        wait_for_end(broker)


def test_a_paused_topic_and_many_channels_are_named_the_largest_first(broker):
    make_queue(broker, 1)
    assert post(broker.http, "/topic/pause?topic=t").status == 200
    for number in range(12):
        path = f"/topic/create?topic=u{number}", f"/channel/create?topic=u{number}&channel=c"
        for each in path:
            assert post(broker.http, each).status == 200
        bodies = b"\n".join([b"x"] * (number + 1))
        assert post(broker.http, f"/mpub?topic=u{number}", bodies).status == 200
    for _ in range(5):
        assert post(broker.http, "/pub?topic=t", b"x").status == 200
    found = begin(broker, query="")
    assert found["messages"] == found["held"] == 1 + 5 + 78
    shown = [(one["topic"], one["channel"], one["messages"]) for one in found["held_by"]]
    assert shown[:3] == [("u11", "c", 12), ("u10", "c", 11), ("u9", "c", 10)]
    assert ("t", "", 5) in shown
    assert len(shown) == 10
    broker.wait_for_line("and nobody gets 84 of them: u11/c (no consumers, 12), u10/c")
    assert post(broker.http, "/drain/cancel").status == 200


def test_a_topic_without_channels_is_not_waited_for(broker, tmp_path):
    assert post(broker.http, "/pub?topic=nobody", b"kept").status == 200
    assert begin(broker)["messages"] == 0
    wait_for_end(broker)
    with start_nsqd("nsqfast", tmp_path / "data") as again:
        assert topic_stats(again.http, "nobody")["depth"] == 1


def test_a_new_deadline_replaces_the_old_one(broker):
    make_queue(broker, 1)
    first = begin(broker, query="")
    assert first["deadline"] is None
    assert begin(broker, "?deadline=0")["since"] == first["since"]
    wait_for_end(broker)


def test_a_cancelled_drain_takes_messages_again(broker):
    make_queue(broker, 1)
    begin(broker)
    answer = post(broker.http, "/drain/cancel")
    assert answer.json() == {"draining": False, **left(1, 1)}
    assert get(broker.http, "/ping").body == b"OK"
    assert post(broker.http, "/pub?topic=t", b"x").status == 200
    with Client(broker.tcp) as client:
        client.pub("t", b"y")
        client.sub("t", "c", 3)
        for message in client.read_messages(3):
            client.fin(message)
    # It does not stop any more, though all is delivered.
    assert get(broker.http, "/drain").json()["draining"] is False
    assert post(broker.http, "/drain/cancel").status == 200


# -- nsqlookupd


def test_it_leaves_nsqlookupd_and_comes_back(tmp_path):
    with start_nsqlookupd("nsqfast") as lookupd:
        flag = f"--lookupd-tcp-address={text_of(lookupd.tcp)}"
        with start_nsqd("nsqfast", tmp_path, "--http-drain", flag) as broker:
            broker.wait_for_line("0 names to register")
            make_queue(broker, 1)
            wait_until(lambda: topics(lookupd.http) == ["t"] and len(nodes(lookupd.http)) == 1)
            begin(broker)
            wait_until(lambda: nodes(lookupd.http) == [])
            # Neither a changed setting nor a new name brings it back.
            addresses = json.dumps([text_of(lookupd.tcp)]).encode()
            path = "/config/nsqlookupd_tcp_addresses"
            assert request(broker.http, "PUT", path, addresses).status == 200
            assert post(broker.http, "/topic/create?topic=u").status == 200
            assert nodes(lookupd.http) == []
            assert post(broker.http, "/drain/cancel").status == 200
            wait_until(
                lambda: [sorted(node["topics"]) for node in nodes(lookupd.http)] == [["t", "u"]]
            )


def test_a_topic_that_waits_for_its_channels_waits_no_longer(tmp_path):
    with FakeLookupd() as lookupd:
        lookupd.may_answer.clear()  # when it is asked for channels
        flag = f"--lookupd-tcp-address={lookupd.address}"
        with start_nsqd("nsqfast", tmp_path, "--http-drain", flag) as broker:
            broker.wait_for_line("0 names to register")
            assert post(broker.http, "/topic/create?topic=t").status == 200
            assert post(broker.http, "/channel/create?topic=t&channel=c").status == 200
            assert post(broker.http, "/pub?topic=t", b"x").status == 200
            begin(broker)
            with Client(broker.tcp) as client:
                client.sub("t", "c", 1)
                client.fin(client.read_message())
                wait_for_end(broker)


# -- real clients


def test_our_client_publishes_elsewhere_and_consumes_the_rest(broker, other):
    make_queue(broker, 20)

    async def run():
        async with Producer([text_of(broker.tcp), text_of(other.tcp)]) as producer:
            for number in range(20, 30):
                await producer.publish("t", b"%d" % number)
            begin(broker)
            taken_before = (topic_stats(other.http, "t") or {"message_count": 0})["message_count"]
            for number in range(30, 40):
                await producer.publish("t", b"%d" % number)
            assert topic_stats(other.http, "t")["message_count"] == taken_before + 10
        left = get(broker.http, "/drain").json()["messages"]
        assert left == 30 - taken_before
        async with Consumer("t", "c", nsqd=text_of(broker.tcp)) as consumer:
            for _ in range(left):
                message = await anext(aiter(consumer))
                message.finish()

    asyncio.run(run())
    wait_for_end(broker)


@pytest.mark.go
@pytest.mark.slow
def test_go_nsq_publishes_elsewhere_and_consumes_the_rest(broker, other, tmp_path):
    """nsq_to_nsq takes messages of a broker that drains, and does not give them to another one that does."""
    source = tmp_path / "source"
    source.mkdir()
    make_queue(broker, 1)
    with start_nsqd("nsqfast", source, "--http-drain") as origin:
        make_queue(origin, 50)
        begin(broker)
        begin(origin)
        command = [
            go_program("nsq_to_nsq"),
            "--topic=t",
            "--channel=c",
            f"--nsqd-tcp-address={text_of(origin.tcp)}",
            f"--destination-nsqd-tcp-address={text_of(broker.tcp)}",
            f"--destination-nsqd-tcp-address={text_of(other.tcp)}",
            "--mode=round-robin",
            "--consumer-opt=max_attempts,65535",
            "--consumer-opt=max_backoff_duration,0s",
            "--consumer-opt=default_requeue_delay,10ms",
        ]
        relay = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_for_end(origin)
        finally:
            relay.kill()
            relay.wait()
    assert topic_stats(other.http, "t")["message_count"] == 50
    assert topic_stats(broker.http, "t")["channels"]["c"]["depth"] == 1
