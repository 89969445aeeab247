"""snappy and deflate on the wire: the same conversations with nsqfast and with Go."""

import contextlib
import json
import random
import subprocess

import pytest

from support.packed import PACKED, change_over
from support.server import go_program
from support.web import topic_stats
from support.wire import encode_command

LINES = [b"line %d" % number for number in range(500)]
SECONDS_MAX = 50


@pytest.fixture(params=PACKED)
def kind(request):
    return request.param


def upgrade(client, kind, **more):
    """Ask for it, read the OK that comes through it; the answer to IDENTIFY."""
    asked = {"feature_negotiation": True, kind: True, **more}
    answer = json.loads(client.ask("IDENTIFY", body=json.dumps(asked).encode()))
    assert answer[kind] is True
    change_over(client, kind)
    return answer


def test_publish_and_consume(client, topic, kind):
    answer = upgrade(client, kind)
    assert answer["deflate"] is (kind == "deflate")
    assert answer["snappy"] is (kind == "snappy")
    bodies = [b"%d" % number * 50 for number in range(300)]
    client.mpub(topic, bodies)
    client.sub(topic, "c", 300)
    messages = client.read_messages(300)
    assert sorted(message.body for message in messages) == sorted(bodies)
    for message in messages:
        client.command("FIN", message.id)
    client.barrier()


def test_large_bodies_that_cannot_be_packed(client, topic, kind):
    upgrade(client, kind)
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    bodies = [random.Random(seed + n).randbytes(size) for n, size in enumerate((300_000, 65536, 1))]
    client.mpub(topic, bodies)
    client.sub(topic, "c", 10)
    assert sorted(message.body for message in client.read_messages(3)) == sorted(bodies)


@pytest.mark.parametrize("level", [-1, 0, 1, 6, 9, 100])
def test_deflate_level(client, level):
    answer = upgrade(client, "deflate", deflate_level=level)
    assert answer["deflate_level"] == (level if 1 <= level <= 6 else 6)
    client.barrier()


def test_bytes_behind_the_question_are_thrown_away(client, topic, kind):
    body = json.dumps({"feature_negotiation": True, kind: True}).encode()
    client.send(encode_command("IDENTIFY", body=body) + b"GARBAGE\n" * 3)
    assert json.loads(client.read_response())[kind] is True
    change_over(client, kind)
    client.barrier()


def has_ended(connection):
    """Whatever came before; a timeout is an error."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass
    with contextlib.suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def test_what_is_not_packed_ends_the_connection(client, kind):
    upgrade(client, kind)
    client.socket = client.socket.raw
    # A reserved block type for deflate, a reserved chunk type for snappy.
    client.send(b"\x07\x07\x00\x00" * 10)
    assert has_ended(client.socket)


def test_stats_tell(client, topic, kind, broker):
    upgrade(client, kind)
    client.sub(topic, "c", 1)
    [found] = topic_stats(broker.http, topic)["channels"]["c"]["clients"]
    assert (found["deflate"], found["snappy"]) == (kind == "deflate", kind == "snappy")


@pytest.mark.go
@pytest.mark.slow
def test_go_tools(broker, client, topic, kind):
    host, port = broker.tcp
    flags = [f"--topic={topic}", f"--nsqd-tcp-address={host}:{port}"]
    publish = [go_program("to_nsq"), *flags, f"--producer-opt={kind},true"]
    subprocess.run(
        publish,
        input=b"\n".join(LINES) + b"\n",
        check=True,
        timeout=SECONDS_MAX,
        capture_output=True,
    )
    tail = [go_program("nsq_tail"), *flags, "-n=500", "--max-in-flight=100"]
    tail += [f"--consumer-opt={kind},true"]
    done = subprocess.run(tail, check=True, timeout=SECONDS_MAX, capture_output=True)
    assert sorted(done.stdout.split(b"\n")[:500]) == sorted(LINES)


def test_a_line_without_end_that_costs_the_peer_little(client, kind):
    upgrade(client, kind)
    with contextlib.suppress(ConnectionError):
        client.send(b"A" * (1 << 20))
    assert has_ended(client.socket.raw)
