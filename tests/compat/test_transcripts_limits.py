"""Limits set by flags: consumers of a channel, sizes, memory queues, MPUB on a small broker."""

import pytest

from support.web import get, post, stats, topic_stats
from support.wire import ERROR, encode_body, encode_frame, encode_messages

NSQD_FLAGS = (
    "--max-channel-consumers=2",
    "--max-msg-size=100",
    "--max-body-size=1000",
    "--max-rdy-count=7",
    "--max-req-timeout=5s",
    "--mem-queue-size=2",
    "--max-heartbeat-interval=5s",
    "--max-output-buffer-size=1024",
    "--max-output-buffer-timeout=1s",
    "--max-msg-timeout=10s",
    "--msg-timeout=5s",
    "--output-buffer-timeout=100ms",
    "--max-deflate-level=4",
)


def refused(client, text):
    assert client.read_to_end() == encode_frame(ERROR, text.encode())


def test_consumers_of_a_channel(connect, topic):
    clients = [connect() for _ in range(4)]
    for client in clients[:2]:
        client.sub(topic, "c")
    clients[2].command("SUB", topic, "c")
    refused(clients[2], f"E_SUB_FAILED SUB failed consumers for {topic}:c exceeds limit of 2")
    clients[3].sub(topic, "other")


@pytest.mark.parametrize("command", ["PUB {}", "DPUB {} 0"])
def test_message_size(connect, topic, command):
    exact, over = connect(), connect()
    words = command.format(topic)
    exact.command(words, body=bytes(100))
    assert exact.read_response() == b"OK"
    over.command(words, body=bytes(101))
    name = command.split()[0]
    refused(over, f"E_BAD_MESSAGE {name} message too big 101 > 100")


def test_mpub_sizes(connect, topic):
    exact, over, many, big = (connect() for _ in range(4))
    body = encode_messages([bytes(100)] * 9)
    exact.command("MPUB", topic, body=body.ljust(1000, b"\0")[: len(body)])
    assert exact.read_response() == b"OK"
    over.command("MPUB", topic, body=encode_messages([b"x", bytes(101)]))
    refused(over, "E_BAD_MESSAGE MPUB message too big 101 > 100")
    many.command("MPUB", topic, body=(200).to_bytes(4, "big"))
    refused(many, "E_BAD_BODY MPUB invalid message count 200")
    big.send(b"MPUB " + topic.encode() + b"\n" + (1001).to_bytes(4, "big"))
    refused(big, "E_BAD_BODY MPUB body too big 1001 > 1000")


def test_largest_mpub_count(client, topic):
    # floor((1000 - 4) / 5): as many one-byte messages as fit into the largest body.
    client.mpub(topic, [b"x"] * 199)
    client.sub(topic, "c", 7)
    assert len(client.read_messages(7)) == 7


def test_rdy_maximum(connect, topic):
    exact, over = connect(), connect()
    for client in (exact, over):
        client.sub(topic, "c")
    exact.command("RDY", "7")
    exact.barrier()
    over.command("RDY", "8")
    refused(over, "E_INVALID RDY count 8 out of range 0-7")


def test_deferral_maximum(connect, topic):
    exact, over = connect(), connect()
    assert exact.ask("DPUB", topic, "5000", body=b"x") == b"OK"
    over.command("DPUB", topic, "5001", body=b"x")
    refused(over, "E_INVALID DPUB timeout 5001 out of range 0-5000")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("heartbeat_interval", 5001, "heartbeat interval"),
        ("output_buffer_size", 1025, "output buffer size"),
        ("output_buffer_timeout", 1001, "output buffer timeout"),
        ("msg_timeout", 10001, "msg timeout"),
    ],
)
def test_identify_maxima(connect, field, value, words):
    exact, over = connect(), connect()
    exact.identify(**{field: value - 1})
    over.command("IDENTIFY", body=f'{{"{field}":{value}}}'.encode())
    refused(over, f"E_BAD_BODY IDENTIFY {words} ({value}) is invalid")


def test_identify_body_size(connect):
    exact, over = connect(), connect()
    assert exact.ask("IDENTIFY", body=b"{}".ljust(1000)) == b"OK"
    over.send(b"IDENTIFY\n" + encode_body(b"{}".ljust(1001)))
    assert over.read_frame() == (ERROR, b"E_BAD_BODY IDENTIFY body too big 1001 > 1000")


def test_negotiated_from_flags(client):
    answer = client.identify(feature_negotiation=True)
    assert answer["max_rdy_count"] == 7
    assert answer["max_msg_timeout"] == 10000
    assert answer["msg_timeout"] == 5000
    assert answer["output_buffer_timeout"] == 100
    assert (answer["deflate_level"], answer["max_deflate_level"]) == (4, 4)


def test_info_from_flags(broker):
    info = get(broker.http, "/info").json()
    assert info["max_heartbeat_interval"] == 5_000_000_000
    assert info["max_output_buffer_size"] == 1024
    assert info["max_output_buffer_timeout"] == 1_000_000_000
    assert info["max_deflate_level"] == 4


@pytest.mark.disk
def test_overflow_goes_to_disk_and_comes_back(broker, client, topic):
    bodies = [b"%02d" % number for number in range(20)]
    for body in bodies:
        client.pub(topic, body)
    found = topic_stats(broker.http, topic)
    assert (found["depth"], found["backend_depth"]) == (20, 18)
    client.sub(topic, "c", 7)
    got = []
    for _ in bodies:
        message = client.read_message()
        got.append(message.body)
        client.fin(message)
    assert sorted(got) == bodies
    client.barrier()
    found = topic_stats(broker.http, topic)
    assert found["depth"] == found["backend_depth"] == 0
    assert found["channels"]["c"]["depth"] == 0


def test_ephemeral_overflow_is_dropped(broker, client, topic):
    name = topic + "#ephemeral"
    for number in range(5):
        client.pub(name, b"%d" % number)
    found = topic_stats(broker.http, name)
    assert (found["depth"], found["backend_depth"], found["message_count"]) == (2, 0, 5)


def test_http_sizes(broker, topic):
    assert post(broker.http, f"/pub?topic={topic}", bytes(100)).status == 200
    answer = post(broker.http, f"/pub?topic={topic}", bytes(101))
    assert (answer.status, answer.body) == (413, b'{"message":"MSG_TOO_BIG"}')
    answer = post(broker.http, f"/mpub?topic={topic}", b"x\n" * 501)
    assert (answer.status, answer.body) == (413, b'{"message":"BODY_TOO_BIG"}')
    answer = post(broker.http, f"/mpub?topic={topic}", b"a\n" + b"x" * 101)
    assert (answer.status, answer.body) == (413, b'{"message":"MSG_TOO_BIG"}')
    answer = post(broker.http, f"/pub?topic={topic}&defer=5001", b"x")
    assert (answer.status, answer.body) == (400, b'{"message":"INVALID_DEFER"}')
    too_big = encode_messages([b"x", bytes(101)])
    answer = post(broker.http, f"/mpub?topic={topic}&binary=true", too_big)
    assert (answer.status, answer.body) == (413, b'{"message":"BAD_MESSAGE"}')
    assert stats(broker.http)["health"] == "OK"
