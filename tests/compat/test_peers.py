"""Peers that misbehave: garbage, claims, silence, and readers that do not read. nsqfast only.

Go's nsqd waits for ever for a magic and for half a command at shutdown; nsqfast does not.
"""

import random
import socket
import time

import pytest

from support.server import LOG_MODES, start_nsqd
from support.web import get, stats
from support.wire import ERROR, RESPONSE, Client, encode_frame

MIB = 1 << 20

pytestmark = pytest.mark.slow


@pytest.fixture(
    scope="module",
    params=["nsqfast", *(pytest.param(mode, marks=pytest.mark.soak) for mode in LOG_MODES)],
)
def broker(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    with start_nsqd(request.param, folder, "--mem-queue-size=10") as server:
        yield server


def still_serves(broker):
    with Client(broker.tcp) as client:
        client.barrier()
    assert get(broker.http, "/ping").body == b"OK"


@pytest.mark.parametrize("magic", [b"  V2", b""])
def test_garbage(broker, magic):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    for _ in range(100):
        with Client(broker.tcp, magic) as client:
            client.send(source.randbytes(source.randrange(1, 2000)) + b"\n")
            client.socket.shutdown(socket.SHUT_WR)
            client.read_to_end()
    still_serves(broker)


def test_garbage_over_http(broker):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    for start in (b"", b"POST /pub?topic=t HTTP/1.1\r\nContent-Length: ", b"GET /"):
        for _ in range(30):
            with Client(broker.http, start) as client:
                client.send(source.randbytes(source.randrange(1, 500)) + b"\r\n\r\n")
                client.socket.shutdown(socket.SHUT_WR)
                client.read_to_end()
    still_serves(broker)


def test_claimed_lengths_cost_no_memory(broker):
    before = broker.resident_bytes()
    with Client(broker.tcp) as client:
        client.send(b"PUB t\n\x7f\xff\xff\xff")
        error = b"E_BAD_MESSAGE PUB message too big 2147483647 > 1048576"
        assert client.read_to_end() == encode_frame(ERROR, error)
    clients = [Client(broker.tcp) for _ in range(100)]
    for client in clients:
        # In range, so the broker waits; what has not arrived needs no room.
        client.send(b"MPUB t\n\x00\x4f\xff\xff\x00\x00\x00\x05\x00\x0f\xff\xffonly this")
    still_serves(broker)
    assert broker.resident_bytes() - before < 32 * MIB
    for client in clients:
        client.close()


def test_line_without_an_end_costs_no_memory(broker):
    before = broker.resident_bytes()
    with Client(broker.tcp) as client:
        try:
            for _ in range(64):
                client.send(b"x" * MIB)
        except ConnectionError:
            pass  # closed after 16 KiB, as it should be
        assert client.read_to_end() == b""
    assert broker.resident_bytes() - before < 16 * MIB


def test_reader_that_does_not_read(broker):
    count, size = 150, 512 * 1024
    with Client(broker.tcp, seconds_max=30) as publisher, Client(broker.tcp) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.sub("large", "c")
        for number in range(count):
            publisher.pub("large", b"%06d" % number + bytes(size - 6))
        before = broker.resident_bytes()
        slow.command("RDY", "2500")
        for _ in range(50):
            publisher.barrier()
        assert stats(broker.http, topic="large")["health"] == "OK"
        assert broker.resident_bytes() - before < 24 * MIB
        for number in range(count):
            message = slow.read_message()
            assert int(message.body[:6]) == number
            slow.fin(message)
        slow.barrier()
    assert broker.resident_bytes() - before < 48 * MIB


def test_publisher_that_reads_no_answers(broker):
    before = broker.resident_bytes()
    with Client(broker.tcp, seconds_max=2) as deaf:
        deaf.sub("deaf", "c")
        wrong = b"FIN 0000000000000000\n" * 4096
        try:
            for _ in range(500):  # 40 MB in, more than 130 MB of answers
                deaf.send(wrong)
        except TimeoutError:
            pass  # the broker stopped reading, which is right too
        assert broker.resident_bytes() - before < 32 * MIB
    still_serves(broker)


def test_nobody_can_hold_up_a_shutdown(tmp_path):
    beginnings = [
        b"",
        b"  V",
        b"  V2",
        b"  V2PU",
        b"  V2PUB t\n\x00\x00",
        b"  V2PUB t\n\x00\x00\x00\x09abc",
        b"  V2SUB t c\nRDY 10\n",
    ]
    with start_nsqd("nsqfast", tmp_path) as server:
        peers = [Client(server.tcp, beginning) for beginning in beginnings]
        half_requests = (
            b"",
            b"POST /pub?top",
            b"POST /pub?topic=t HTTP/1.1\r\nContent-Length: 9\r\n\r\nx",
        )
        peers += [Client(server.http, half) for half in half_requests]
        assert peers[6].read_frame() == (RESPONSE, b"OK")
        with Client(server.tcp) as publisher:
            publisher.mpub("t", [b"x"] * 20)
        peers[6].read_messages(10)
        idle = Client(server.http, b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        idle.read_exactly(15)
        start = time.monotonic()
        server.stop()
        assert time.monotonic() - start < 10
        for peer in [*peers, idle]:
            peer.read_to_end()
            peer.close()
