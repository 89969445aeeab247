"""Delivery: the RDY window, FIN, REQ, TOUCH, time-outs, deferral, pause, empty, delete."""

import time

import pytest

from support.waiting import eventually
from support.web import post, topic_stats

# Go scans only channels that it knew at start for its first five seconds.
TIMED = [f"timed-{number}" for number in range(8)]
NSQD_METADATA = {
    "version": "1.3.0",
    "topics": [
        {"name": name, "paused": False, "channels": [{"name": "c", "paused": False}]}
        for name in TIMED
    ],
}
LATE_S_MAX = 5.0  # what a busy machine may add
NSQD_FLAGS = ("--max-msg-timeout=3s", "--max-req-timeout=2s", "--msg-timeout=2s")


def quiet(client):
    client.barrier()


def test_rdy_is_a_window(client, connect, topic):
    publisher = connect()
    publisher.mpub(topic, [b"%d" % number for number in range(10)])
    client.sub(topic, "c", 3)
    held = client.read_messages(3)
    quiet(client)
    client.fin(held[0])
    fourth = client.read_message()
    quiet(client)
    client.command("REQ", held[1].id, "0")
    fifth = client.read_message()
    quiet(client)
    # Lowering the window below what is in flight only stops delivery.
    client.command("RDY", "1")
    client.fin(held[2])
    quiet(client)
    client.fin(fourth)
    quiet(client)
    client.fin(fifth)
    client.read_message()
    quiet(client)


def test_rdy_without_a_count_means_one(client, topic):
    client.sub(topic, "c")
    client.mpub(topic, [b"a", b"b"])
    client.command("RDY")
    client.read_message()
    quiet(client)


def test_no_delivery_before_rdy(client, topic):
    client.sub(topic, "c")
    client.pub(topic, b"x")
    quiet(client)
    client.command("RDY", "0")
    quiet(client)
    client.command("RDY", "1")
    assert client.read_message().body == b"x"


def test_order_timestamps_ids(client, topic):
    before_ns = time.time_ns()
    client.sub(topic, "c", 100)
    for number in range(50):
        client.command("PUB", topic, body=b"%d" % number)
    frames = [client.read_frame() for _ in range(100)]
    bodies = [data[26:] for kind, data in frames if kind == 2]
    assert bodies == [b"%d" % number for number in range(50)]
    ids = [data[10:26] for kind, data in frames if kind == 2]
    assert len(set(ids)) == 50
    assert all(set(one) <= set(b"0123456789abcdef") for one in ids)
    stamps = [int.from_bytes(data[:8], "big") for kind, data in frames if kind == 2]
    assert all(before_ns <= stamp <= time.time_ns() for stamp in stamps)


def test_every_channel_gets_every_message(connect, topic):
    first, second = connect(), connect()
    first.sub(topic, "one", 5)
    second.sub(topic, "two", 5)
    first.pub(topic, b"x")
    mine, yours = first.read_message(), second.read_message()
    assert mine == yours
    first.fin(mine)
    second.command("REQ", yours.id, "0")
    again = second.read_message()
    assert again == yours._replace(attempts=2)
    first.barrier()


def test_one_channel_shares_its_messages(connect, topic):
    consumers = [connect() for _ in range(4)]
    for consumer in consumers:
        consumer.sub(topic, "c", 1)
    bodies = [b"%d" % number for number in range(4)]
    consumers[0].mpub(topic, bodies)
    assert sorted(consumer.read_message().body for consumer in consumers) == bodies


def test_backlog_waits_for_the_first_channel(client, connect, topic):
    client.mpub(topic, [b"1", b"2", b"3"])
    client.sub(topic, "first", 10)
    assert sorted(m.body for m in client.read_messages(3)) == [b"1", b"2", b"3"]
    later = connect()
    later.sub(topic, "second", 10)
    later.barrier()
    later.pub(topic, b"new")
    assert later.read_message().body == b"new"


def test_fin_twice(client, topic):
    client.sub(topic, "c", 1)
    client.pub(topic, b"x")
    message = client.read_message()
    client.fin(message)
    client.fin(message)
    text = b"E_FIN_FAILED FIN " + message.id + b" failed ID not in flight"
    assert client.read_error() == text


def test_requeue_counts_attempts_not_messages(broker, client, topic):
    client.sub(topic, "c", 1)
    client.pub(topic, b"x")
    message = client.read_message()
    for attempts in range(1, 6):
        assert message.attempts == attempts
        client.command("REQ", message.id, "0")
        message = client.read_message()
    client.fin(message)
    client.barrier()
    found = topic_stats(broker.http, topic)["channels"]["c"]
    assert (found["message_count"], found["requeue_count"]) == (1, 5)
    consumer = found["clients"][0]
    assert (consumer["message_count"], consumer["requeue_count"]) == (6, 5)
    assert (consumer["finish_count"], consumer["in_flight_count"]) == (1, 0)


def elapsed_until(client, start):
    message = client.read_message()
    return message, time.monotonic() - start


@pytest.mark.slow
def test_timed_things(broker, connect):
    """All that needs time, side by side: one wait for all of them."""
    clients = {}
    for name in TIMED:
        clients[name] = connect()
        clients[name].identify(heartbeat_interval=1000, msg_timeout=1000)
        clients[name].sub(name, "c", 1)
    publisher = connect()
    start = time.monotonic()

    def receive(name):
        return clients[name].read_message()

    requeued, timed, touched, capped, deferred, late, huge = TIMED[:7]
    for name in (requeued, timed, touched, capped, late, huge):
        publisher.pub(name, b"x")
    assert publisher.ask("DPUB", deferred, "300", body=b"later") == b"OK"
    messages = {name: receive(name) for name in (requeued, timed, touched, capped, late, huge)}
    clients[requeued].command("REQ", messages[requeued].id, "400")
    clients[huge].command("REQ", messages[huge].id, "99999999")

    message, seconds = elapsed_until(clients[deferred], start)
    assert (message.attempts, message.body) == (1, b"later")
    assert 0.3 <= seconds < 0.3 + LATE_S_MAX
    message, seconds = elapsed_until(clients[requeued], start)
    assert message.attempts == 2
    assert 0.4 <= seconds < 0.4 + LATE_S_MAX
    clients[requeued].fin(message)
    found = topic_stats(broker.http, requeued)["channels"]["c"]
    assert (found["requeue_count"], found["timeout_count"]) == (1, 0)

    clients[touched].command("TOUCH", messages[touched].id)  # once, at about 0.4 s
    message, seconds = elapsed_until(clients[timed], start)
    assert message.attempts == 2
    assert 1.0 <= seconds < 1.0 + LATE_S_MAX
    found = topic_stats(broker.http, timed)["channels"]["c"]
    assert found["timeout_count"] == 1
    message, seconds = elapsed_until(clients[touched], start)
    assert message.attempts == 2
    assert 1.4 <= seconds < 1.4 + LATE_S_MAX

    # The timed-out message belongs to its second delivery; the answer to the first counts for it.
    clients[late].read_message()
    clients[late].fin(messages[late])
    clients[late].barrier()

    message, seconds = elapsed_until(clients[huge], start)  # clamped to max-req-timeout
    assert 2.0 <= seconds < 2.0 + LATE_S_MAX


@pytest.mark.slow
def test_touch_cannot_hold_a_message_beyond_the_maximum(connect):
    client = connect()
    client.identify(heartbeat_interval=1000, msg_timeout=2000)
    client.sub(TIMED[7], "c", 1)
    start = time.monotonic()
    client.pub(TIMED[7], b"x")
    message = client.read_message()
    while True:
        client.command("TOUCH", message.id)  # answered by silence, then at each heartbeat
        frame = client.read_frame()
        if frame.kind == 2:
            break
        assert frame.data == b"_heartbeat_", frame
    assert 3.0 <= time.monotonic() - start < 3.0 + LATE_S_MAX


def test_pause_and_unpause_of_a_channel(broker, client, topic):
    client.sub(topic, "c", 10)
    assert post(broker.http, f"/channel/pause?topic={topic}&channel=c").status == 200
    client.pub(topic, b"waits")
    client.barrier()
    found = topic_stats(broker.http, topic)
    assert found["channels"]["c"]["paused"] is True
    assert post(broker.http, f"/channel/unpause?topic={topic}&channel=c").status == 200
    assert client.read_message().body == b"waits"
    assert topic_stats(broker.http, topic)["channels"]["c"]["paused"] is False


def test_pause_and_unpause_of_a_topic(broker, client, topic):
    client.sub(topic, "c", 10)
    assert post(broker.http, f"/topic/pause?topic={topic}").status == 200
    client.pub(topic, b"waits")
    client.barrier()
    found = topic_stats(broker.http, topic)
    assert (found["paused"], found["depth"], found["message_count"]) == (True, 1, 1)
    assert found["channels"]["c"]["message_count"] == 0
    assert post(broker.http, f"/topic/unpause?topic={topic}").status == 200
    assert client.read_message().body == b"waits"


def test_empty_a_channel_takes_what_is_in_flight(broker, client, topic):
    def find_channel():
        return topic_stats(broker.http, topic)["channels"]["c"]

    client.sub(topic, "c", 1)
    client.mpub(topic, [b"1", b"2", b"3"])
    message = client.read_message()
    # Go's nsqd would push another message between the moment when nothing is in flight and that when all are dropped.
    client.command("RDY", "0")
    eventually(lambda: find_channel()["clients"][0]["ready_count"] == 0)
    eventually(lambda: find_channel()["depth"] == 2)
    assert post(broker.http, f"/channel/empty?topic={topic}&channel=c").status == 200
    found = find_channel()
    assert (found["depth"], found["in_flight_count"]) == (0, 0)
    client.fin(message)
    assert client.read_error().endswith(b" failed ID not in flight")
    client.command("RDY", "1")
    client.pub(topic, b"new")
    assert client.read_message().body == b"new"


def test_empty_a_topic_leaves_its_channels(broker, client, topic):
    client.mpub(topic, [b"1", b"2"])
    assert post(broker.http, f"/topic/empty?topic={topic}").status == 200
    assert topic_stats(broker.http, topic)["depth"] == 0
    client.sub(topic, "c")
    client.pub(topic, b"3")
    # Go's nsqd moves it to the channel some time after its OK.
    eventually(lambda: topic_stats(broker.http, topic)["channels"]["c"]["depth"] == 1)
    assert post(broker.http, f"/topic/empty?topic={topic}").status == 200
    client.command("RDY", "1")
    assert client.read_message().body == b"3"


@pytest.mark.parametrize("what", ["channel", "topic"])
def test_delete_closes_the_consumers(broker, connect, topic, what):
    consumer, publisher = connect(), connect()
    consumer.sub(topic, "c", 1)
    publisher.pub(topic, b"x")
    consumer.read_message()
    query = f"topic={topic}" + ("&channel=c" if what == "channel" else "")
    assert post(broker.http, f"/{what}/delete?{query}").status == 200
    assert consumer.read_to_end() == b""
    found = topic_stats(broker.http, topic)
    assert found["channels"] == {} if what == "channel" else found is None
    publisher.pub(topic, b"again")
    assert topic_stats(broker.http, topic)["depth"] == 1


def test_ephemeral_channel_goes_with_its_last_consumer(broker, connect, topic):
    first, second = connect(), connect()
    for consumer in (first, second):
        consumer.sub(topic, "c#ephemeral")
    first.close()
    second.barrier()
    assert list(topic_stats(broker.http, topic)["channels"]) == ["c#ephemeral"]
    second.close()
    eventually(lambda: topic_stats(broker.http, topic)["channels"] == {})


def test_ephemeral_topic_goes_with_its_last_channel(broker, connect, topic):
    name = topic + "#ephemeral"
    consumer = connect()
    consumer.sub(name, "c#ephemeral")
    assert topic_stats(broker.http, name) is not None
    consumer.close()
    eventually(lambda: topic_stats(broker.http, name) is None)
    publisher = connect()
    publisher.pub(name, b"x")
    assert topic_stats(broker.http, name)["depth"] == 1


def test_ephemeral_topic_stays_with_a_lasting_channel(broker, connect, topic):
    name = topic + "#ephemeral"
    consumer = connect()
    consumer.sub(name, "c")
    consumer.close()
    eventually(lambda: topic_stats(broker.http, name)["channels"]["c"]["client_count"] == 0)
    assert list(topic_stats(broker.http, name)["channels"]) == ["c"]


def test_closed_consumer_leaves_the_channel(broker, connect, topic):
    consumer = connect()
    consumer.sub(topic, "c")
    assert topic_stats(broker.http, topic)["channels"]["c"]["client_count"] == 1
    consumer.close()
    eventually(lambda: topic_stats(broker.http, topic)["channels"]["c"]["client_count"] == 0)


def test_pipelined_fins(broker, client, topic):
    count = 2000
    client.sub(topic, "c", 2500)
    client.mpub(topic, [b"%d" % number for number in range(count)])
    messages = client.read_messages(count)
    client.send(b"".join(b"FIN %s\n" % message.id for message in messages))
    client.barrier()
    found = topic_stats(broker.http, topic)["channels"]["c"]
    assert (found["in_flight_count"], found["depth"]) == (0, 0)
    assert found["clients"][0]["finish_count"] == count
