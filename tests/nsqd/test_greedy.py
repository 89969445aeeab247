"""One client that sends more than its share: the others are served between two parts of it."""

import socket
import threading
import zlib

import pytest

from support.packed import change_over
from support.server import start_nsqd
from support.wire import Client

FIN_COUNT = 100_000
REQUEST_COUNT = 3000
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


def test_little_that_unfolds_to_many_commands(broker):
    with Client(broker.tcp, seconds_max=60) as greedy:
        greedy.identify(feature_negotiation=True, deflate=True)
        change_over(greedy, "deflate")
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        fins = b"FIN %s\n" % (b"a" * 16)
        stream = packer.compress(b"SUB greedy#ephemeral c\n" + fins * FIN_COUNT)
        stream += packer.flush(zlib.Z_SYNC_FLUSH)
        assert len(stream) < 10_000  # one read brings all of it

        def read_all():
            greedy.socket.raw.sendall(stream)
            assert greedy.read_response() == b"OK"
            for _ in range(FIN_COUNT):
                assert greedy.read_error().startswith(b"E_FIN_FAILED")

        assert serve_meanwhile(broker, read_all) >= SERVED_MIN
    broker.wait_for_line("lines left out")
    # Of the log it has a share, too: 100 lines, ten a second, and those of the connection itself.
    assert sum("E_FIN_FAILED" in line for line in broker.lines) < 2000


def test_pipelined_requests(broker):
    with socket.create_connection(broker.http, timeout=60) as greedy:

        def read_all():
            greedy.sendall(b"GET /stats HTTP/1.1\r\nHost: x\r\n\r\n" * REQUEST_COUNT)
            seen, rest = 0, b""
            while seen < REQUEST_COUNT:
                data = rest + greedy.recv(1 << 20)
                seen += data.count(b"HTTP/1.1 200 OK")
                rest = data[data.rfind(b"HTTP/1.1 200 OK") + 1 :][-20:]

        assert serve_meanwhile(broker, read_all) >= SERVED_MIN
