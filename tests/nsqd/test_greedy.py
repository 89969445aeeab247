"""One client that sends more than its share: the others are served between two parts of it."""

import socket
import threading
import zlib

import pytest

from support.packed import change_over
from support.server import start_nsqd
from support.wire import Client

FIN_COUNT = 300_000
REQUEST_COUNT = 10_000
SERVED_MIN = 20  # publishes of another client meanwhile, where there was one or two


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("greedy")) as server:
        yield server


def serve_meanwhile(broker, read_all):
    """How often a second client is answered while `read_all` gets what the first one asked for."""
    thread = threading.Thread(target=read_all)
    served = 0
    with Client(broker.tcp, seconds_max=60) as other:
        other.pub("other#ephemeral", b"x")
        thread.start()
        while thread.is_alive():
            other.pub("other#ephemeral", b"x")
            served += 1
    thread.join()
    return served


def read_answers(sock, text, count, rest=b""):
    """All of them, in long pieces: the second client has the same interpreter, and should not wait for it."""
    seen = 0
    while (seen := seen + rest.count(text)) < count:
        rest = rest[rest.rfind(text) + 1 :][1 - len(text) :] + sock.recv(1 << 20)


def test_little_that_unfolds_to_many_commands(broker):
    with Client(broker.tcp, seconds_max=60) as greedy:
        greedy.identify(feature_negotiation=True, deflate=True)
        change_over(greedy, "deflate")
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        fins = b"FIN %s\n" % (b"a" * 16)
        stream = packer.compress(b"SUB greedy#ephemeral c\n" + fins * FIN_COUNT)
        stream += packer.flush(zlib.Z_SYNC_FLUSH)
        assert len(stream) < 1 << 14  # one read brings all of it

        def read_all():
            greedy.socket.raw.sendall(stream)
            assert greedy.read_response() == b"OK"
            read_answers(greedy.socket, b"E_FIN_FAILED", FIN_COUNT, greedy.take_buffered())

        assert serve_meanwhile(broker, read_all) >= SERVED_MIN
    broker.wait_for_line("lines before it left out")
    # Of the log it has a share, too: 100 lines, ten a second, and those of the connection itself.
    assert sum("E_FIN_FAILED" in line for line in broker.lines) < 2000


def test_pipelined_requests(broker):
    with socket.create_connection(broker.http, timeout=60) as greedy:

        def read_all():
            greedy.sendall(b"GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n" * REQUEST_COUNT)
            read_answers(greedy, b"HTTP/1.1 200 OK", REQUEST_COUNT)

        assert serve_meanwhile(broker, read_all) >= SERVED_MIN
