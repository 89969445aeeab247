"""Where nsqfast differs from Go's nsqd on purpose: each test says what Go does and why not so."""

import time

import pytest

from support.server import start_nsqd
from support.web import get, post, request, topic_stats
from support.wire import RESPONSE, Client

NSQD_FLAGS = ("--mem-queue-size=5", "--max-bytes-per-file=300", "--max-msg-timeout=5s")


@pytest.fixture(scope="module")
def implementation():
    return "nsqfast"


def test_first_in_first_out_across_memory_and_disk(client, topic):
    """Go picks at random between its memory queue and its disk queue."""
    bodies = [b"%03d" % number for number in range(100)]
    for body in bodies:
        client.pub(topic, body)
    client.sub(topic, "c", 1)
    for body in bodies:
        message = client.read_message()
        assert message.body == body
        client.fin(message)


def test_messages_of_a_closed_consumer_come_back_at_once(connect, topic):
    """Go lets them wait for the whole message timeout."""
    first, second = connect(), connect()
    first.sub(topic, "c", 3)
    second.sub(topic, "c")
    second.mpub(topic, [b"1", b"2", b"3"])
    first.read_messages(3)
    start = time.monotonic()
    first.close()
    second.command("RDY", "3")
    messages = second.read_messages(3)
    assert time.monotonic() - start < 20
    assert {message.attempts for message in messages} == {2}


@pytest.mark.slow
def test_timeouts_of_a_young_channel_are_on_time(client, topic):
    """Go looks at a new channel for the first time after up to five seconds."""
    client.identify(msg_timeout=1000)
    client.sub(topic, "c", 1)
    client.pub(topic, b"x")
    client.read_message()
    start = time.monotonic()
    assert client.read_message().attempts == 2
    assert 0.9 <= time.monotonic() - start < 4


def test_delay_is_kept_when_the_memory_queue_is_full(broker, client, topic):
    """Go delivers a deferred message at once when its topic's memory queue had no room."""
    for _ in range(10):
        client.pub(topic, b"filler")
    assert client.ask("DPUB", topic, "60000", body=b"later") == b"OK"
    client.sub(topic, "c", 100)
    assert {message.body for message in client.read_messages(10)} == {b"filler"}
    client.barrier()
    assert topic_stats(broker.http, topic)["channels"]["c"]["deferred_count"] == 1


def test_no_output_timeout_still_delivers(client, connect, topic):
    """Go keeps a message in a buffer without a timeout until something else flushes it."""
    client.identify(output_buffer_timeout=-1)
    client.sub(topic, "c", 100)
    connect().pub(topic, b"x")
    assert client.read_message().body == b"x"


def test_caught_up_reader_leaves_no_bad_files(tmp_path):
    """Go renames each file to .bad whose end its reader had already reached."""
    flags = ("--mem-queue-size=0", "--max-bytes-per-file=300")
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        client.sub("t", "c", 1)
        for number in range(100):
            client.pub("t", b"%d" % number)
            client.fin(client.read_message())
        client.barrier()
    assert list(tmp_path.glob("*.bad")) == []
    assert len(list(tmp_path.glob("t:c.diskqueue.0*.dat"))) <= 1


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/debug/freememory"), ("PUT", "/debug/setblockrate?rate=1")]
)
def test_debug_answers(broker, method, path):
    """Go does what it is asked and then answers 500."""
    assert request(broker.http, method, path).status == 200


def test_repeated_identify_takes_effect(client):
    """Go's delivery loop keeps the heartbeat interval of the first IDENTIFY."""
    client.identify(heartbeat_interval=60000)
    client.identify(heartbeat_interval=1000)
    start = time.monotonic()
    assert client.read_frame() == (RESPONSE, b"_heartbeat_")
    assert time.monotonic() - start < 20  # of the first interval's 60


def test_answer_to_a_bad_magic_arrives_whatever_follows(connect):
    """With unread bytes behind a bad magic Go's close can turn into a reset without an answer."""
    for _ in range(20):
        client = connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.read_to_end().hex() == "0000001200000001455f4241445f50524f544f434f4c"


def test_deleting_a_busy_topic(broker, connect, topic):
    """Publishers go on as if nothing had been; on Go they can be told `exiting` in between."""
    publisher, consumer = connect(), connect()
    consumer.sub(topic, "c", 5)
    publisher.mpub(topic, [b"x"] * 100)
    assert post(broker.http, f"/topic/delete?topic={topic}").status == 200
    publisher.pub(topic, b"new")
    assert topic_stats(broker.http, topic)["depth"] == 1


def test_tls_begins_with_1_2(broker):
    """Go takes TLS 1.0 unless told otherwise."""
    assert get(broker.http, "/config/tls_min_version").body == b"%d" % 0x303


@pytest.mark.parametrize("command", [b"IDENTIFY", b"AUTH"])
def test_what_a_client_says_of_itself_has_64_kib(connect, command):
    """Go takes as much as for an MPUB, and allocates it at once."""
    client = connect()
    client.send(command + b"\n" + (65537).to_bytes(4, "big"))
    assert client.read_error() == b"E_BAD_BODY %b body too big 65537 > 65536" % command
