"""One data path, two brokers: what Go wrote nsqfast delivers, and the other way round."""

import pytest

from support.server import LOG_MODES, start_nsqd
from support.waiting import wait_until
from support.web import post, topic_stats
from support.wire import MESSAGE, Client, decode_message

COUNT = 10_000
BATCH = 100
FLAGS = ("--mem-queue-size=0", "--max-bytes-per-file=20000")
DIRECTIONS = [
    ("go", "nsqfast"),
    ("nsqfast", "go"),
    ("nsqfast", "nsqfast"),
    *(
        pytest.param(*pair, marks=pytest.mark.soak)
        for mode in LOG_MODES
        for pair in (("go", mode), (mode, "go"))
    ),
]

pytestmark = [pytest.mark.go, pytest.mark.slow]


def bodies_of(count, prefix=b"m"):
    return [b"%s-%06d" % (prefix, number) for number in range(count)]


def publish(server, topic, bodies):
    with Client(server.tcp) as client:
        for start in range(0, len(bodies), BATCH):
            client.mpub(topic, bodies[start : start + BATCH])


def wait_for_fan_out(server, topic, channel, count):
    """Go's topics hand on to their channels in the background."""

    def is_over():
        found = topic_stats(server.http, topic)
        return found["depth"] == 0 and found["channels"][channel]["depth"] == count

    wait_until(is_over, lambda: topic_stats(server.http, topic))


def drain(server, topic, channel, count):
    """Takes `count` messages, finishing each, and sees that nothing is left."""
    got = []
    with Client(server.tcp, seconds_max=20) as client:
        client.sub(topic, channel, 500)
        while len(got) < count:
            message = client.read_message()
            got.append(message.body)
            client.fin(message)
        client.barrier()
        found = topic_stats(server.http, topic)
        rest = found["channels"][channel]
        assert (rest["in_flight_count"], rest["deferred_count"]) == (0, 0)
        assert found["depth"] == 0
        assert rest["depth"] == 0
    return got


@pytest.mark.parametrize(("writer", "reader"), DIRECTIONS)
@pytest.mark.parametrize("channel", [None, "c"])
def test_every_message_arrives_once(tmp_path, writer, reader, channel):
    bodies = bodies_of(COUNT)
    with start_nsqd(writer, tmp_path, *FLAGS) as server:
        post(server.http, "/topic/create?topic=t")
        if channel:
            post(server.http, f"/channel/create?topic=t&channel={channel}")
        publish(server, "t", bodies)
        if channel:
            wait_for_fan_out(server, "t", channel, COUNT)
    name = f"t:{channel}" if channel else "t"
    assert len(list(tmp_path.glob(f"{name}.diskqueue.0*.dat"))) > 10
    with start_nsqd(reader, tmp_path, *FLAGS) as server:
        depth = topic_stats(server.http, "t")
        assert depth["depth"] + sum(c["depth"] for c in depth["channels"].values()) == COUNT
        got = drain(server, "t", channel or "c", COUNT)
    assert got == bodies
    with start_nsqd(writer, tmp_path, *FLAGS) as server:
        publish(server, "t", [b"after"])
        assert drain(server, "t", channel or "c", 1) == [b"after"]
    if "go" not in (writer, reader):
        assert list(tmp_path.glob("*.bad")) == []


@pytest.mark.parametrize(("writer", "reader"), DIRECTIONS)
def test_half_consumed_with_messages_in_flight_and_deferred(tmp_path, writer, reader):
    bodies = bodies_of(2000)
    with start_nsqd(writer, tmp_path, *FLAGS) as server:
        post(server.http, "/topic/create?topic=t")
        post(server.http, "/channel/create?topic=t&channel=c")
        publish(server, "t", bodies)
        wait_for_fan_out(server, "t", "c", len(bodies))
        with Client(server.tcp) as client:
            client.sub("t", "c", 300)
            finished = []
            attempts = {}
            for number in range(900):
                message = client.read_message()
                if number % 3 == 0 and number < 300:
                    client.command("REQ", message.id, "60000")
                    attempts[message.body] = 2
                elif number < 700:
                    client.fin(message)
                    finished.append(message.body)
                else:
                    attempts[message.body] = 2  # in flight when the broker stops
            client.command("PUB", "other", body=b"every answer above was handled")
            while (frame := client.read_frame()).kind == MESSAGE:
                attempts[decode_message(frame.data).body] = 2
            assert frame.data == b"OK"
            found = topic_stats(server.http, "t")["channels"]["c"]
            assert found["deferred_count"] == 100
            server.stop()
    rest = sorted(set(bodies) - set(finished))
    # Deferred ones are deferred still where both are ours, and due at once after a kill.
    deferred = 100 if writer == reader == "nsqfast" else 0
    got = []
    for count in filter(None, [len(rest) - deferred, deferred]):
        with start_nsqd(reader, tmp_path, *FLAGS) as server, Client(server.tcp) as client:
            found = topic_stats(server.http, "t")["channels"]["c"]
            assert found["depth"] == count
            assert found["deferred_count"] == len(rest) - len(got) - count
            client.sub("t", "c", 2500)
            messages = client.read_messages(count)
            for message in messages:
                client.fin(message)
                assert message.attempts >= attempts.get(message.body, 1)
            client.barrier()
            got += [message.body for message in messages]
            if deferred:
                server.kill()
    assert sorted(got) == rest


@pytest.mark.parametrize("channel", [None, "c"])
def test_after_go_was_killed(tmp_path, channel):
    bodies = bodies_of(COUNT)
    with start_nsqd("go", tmp_path, *FLAGS) as server:
        post(server.http, "/topic/create?topic=t")
        if channel:
            post(server.http, f"/channel/create?topic=t&channel={channel}")
        publish(server, "t", bodies)
        if channel:
            wait_for_fan_out(server, "t", channel, COUNT)
        server.kill()
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server, Client(server.tcp) as client:
        client.sub("t", channel or "c", 2500)
        missing = set(bodies)  # Go may have stored one twice: once in the topic, once handed on
        while missing:
            message = client.read_message()
            missing.discard(message.body)
            client.fin(message)
        if channel is None:
            found = topic_stats(server.http, "t")
            assert found["channels"]["c"]["message_count"] == COUNT


def test_what_go_adds_is_not_hidden_by_what_nsqfast_remembered(tmp_path):
    """nsqfast dies with messages finished out of order, Go goes on, nsqfast takes over again."""
    first, second = bodies_of(500, b"first"), bodies_of(500, b"second")
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server:
        post(server.http, "/topic/create?topic=t")
        post(server.http, "/channel/create?topic=t&channel=c")
        publish(server, "t", first)
        with Client(server.tcp) as client:
            client.sub("t", "c", 500)
            messages = client.read_messages(500)
            for message in messages[1::2]:
                client.fin(message)
            client.barrier()
            server.kill()
    with start_nsqd("go", tmp_path, *FLAGS) as server:
        publish(server, "t", second)
    wanted = {message.body for message in messages[::2]} | set(second)
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server, Client(server.tcp) as client:
        client.sub("t", "c", 2500)
        while wanted:
            message = client.read_message()
            wanted.discard(message.body)
            client.fin(message)
