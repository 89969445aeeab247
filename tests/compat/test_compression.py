"""snappy and deflate on the wire: the same conversations with nsqfast and with Go."""

import contextlib
import json
import random
import subprocess
import zlib

import cramjam
import pytest

from support.server import go_program
from support.web import topic_stats
from support.wire import encode_command

LINES = [b"line %d" % number for number in range(500)]
SECONDS_MAX = 30
IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"


class DeflateSocket:
    """A socket whose bytes are packed, for a client that knows nothing of it."""

    def __init__(self, raw, early):
        self.raw = raw
        self._early = early
        self._pack = zlib.compressobj(6, zlib.DEFLATED, -15)
        self._unpack = zlib.decompressobj(-15)

    def sendall(self, data):
        self.raw.sendall(self._pack.compress(data) + self._pack.flush(zlib.Z_SYNC_FLUSH))

    def recv(self, size):
        while data := self._early or self.raw.recv(size):
            self._early = b""
            if plain := self._unpack.decompress(data):
                return plain
        return b""

    def close(self):
        self.raw.close()


class SnappySocket:
    """The same with snappy's framing format."""

    def __init__(self, raw, early):
        self.raw = raw
        self._early = early
        self._waiting = b""
        self._is_first = True

    def sendall(self, data):
        framed = bytes(cramjam.snappy.compress(data))
        self.raw.sendall(framed if self._is_first else framed.removeprefix(IDENTIFIER))
        self._is_first = False

    def recv(self, size):
        plain = b""
        while not plain:
            data = self._early or self.raw.recv(size)
            self._early = b""
            if not data:
                return b""
            self._waiting += data
            plain = self._take_chunks()
        return plain

    def _take_chunks(self):
        plain = b""
        while len(self._waiting) >= 4:
            end = 4 + int.from_bytes(self._waiting[1:4], "little")
            if len(self._waiting) < end:
                break
            chunk, self._waiting = self._waiting[:end], self._waiting[end:]
            if chunk[0] != 0xFF:
                plain += bytes(cramjam.snappy.decompress(IDENTIFIER + chunk))
        return plain

    def close(self):
        self.raw.close()


PACKED = {"deflate": DeflateSocket, "snappy": SnappySocket}


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


def change_over(client, kind):
    """From here on everything is packed, and the OK that says so may have come already."""
    client.socket = PACKED[kind](client.socket, client.take_buffered())
    assert client.read_response() == b"OK"


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


def test_what_is_not_packed_ends_the_connection(client, kind):
    upgrade(client, kind)
    client.socket = client.socket.raw
    # A reserved block type for deflate, a reserved chunk type for snappy.
    client.send(b"\x07\x07\x00\x00" * 10)
    with contextlib.suppress(ConnectionError):
        while client.socket.recv(65536):
            pass


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
        while client.socket.raw.recv(65536):
            pass
