"""Redis as a peer of the benchmarks: its answers are parsed whatever pieces they come in, its errors end the run."""

import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from server import redis
from server.loads import Publish
from server.redis import Client, Redis, RedisError, encode, read_entries, read_rate

BODY = b"x" * 20
REFUSED = b"-ERR no such thing\r\n"


def entries(*ids):
    found = [
        b"*2\r\n$%d\r\n%b\r\n*2\r\n$1\r\nb\r\n$%d\r\n%b\r\n" % (len(one), one, len(BODY), BODY)
        for one in ids
    ]
    return b"*1\r\n*2\r\n$5\r\nbench\r\n*%d\r\n%b" % (len(found), b"".join(found))


@contextmanager
def peer(*answers):
    """A port where each request gets the next answer, byte by byte; after the last one the connection is closed.

    Who takes an answer for an error goes before its end.
    """

    def serve(listener):
        accepted, _ = listener.accept()
        with accepted, suppress(ConnectionError):
            for answer in answers:
                accepted.recv(1 << 16)
                for byte in answer:
                    accepted.sendall(bytes([byte]))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_a_command_on_the_wire():
    assert encode("XADD", b"s") == b"*2\r\n$4\r\nXADD\r\n$1\r\ns\r\n"


def test_entries_are_read_when_they_are_whole():
    ids = [b"1700000000000-0", b"1700000000000-1", b"1700000000001-0"]
    answer = entries(*ids)
    assert read_entries(answer) == ids
    assert [size for size in range(len(answer)) if read_entries(answer[:size]) is not None] == []
    assert read_entries(b"*-1\r\n") == []


def test_answers_come_in_pieces():
    with (
        peer(b"$4\r\na\r\nb\r\n", b":7\r\n", b":2\r\n" + entries(b"1-0"), b"*-1\r\n") as port,
        Client(port) as client,
    ):
        assert client.ask("INFO") == "a\r\nb"
        assert client.ask("XLEN", "bench") == "7"
        assert client.acknowledge_and_read([b"0-1", b"0-2"], "c") == [b"1-0"]
        assert client.acknowledge_and_read([], "c") == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (REFUSED, "ERR no such thing"),
        (b":1\r\n" + REFUSED, "ERR no such thing"),
        (b":0\r\n*-1\r\n", "was not pending"),
        (b":1\r\n*1\r\n", "closed the connection"),
    ],
)
def test_an_error_of_redis_ends_the_run(answer, error):
    with (
        peer(answer) as port,
        Client(port) as client,
        pytest.raises(RedisError, match=error),
    ):
        client.acknowledge_and_read([b"0-1"], "c")


def test_the_rate_of_redis_benchmark():
    head = '"test","rps","avg_latency_ms","min","p50","p95","p99","max"\n'
    line = '"XADD bench * b xx","70521.86","0.1","0.2","0.3","0.4","0.5","0.6"\n'
    assert read_rate(head + line) == 70521.86
    with pytest.raises(RuntimeError, match="no result"):
        read_rate(head)


@pytest.mark.slow
@pytest.mark.skipif(not redis.has_redis(), reason="redis-server is missing")
def test_every_entry_is_counted(tmp_path):
    load = Publish(count=0, size=20, batch_size=10)
    with Redis(tmp_path / "data") as server:
        assert redis.publish(server, load, 1000)["rate"] > 0
        assert redis.exchange(server, load, 1000)["rate"] > 0
        # Neither is there any more.
        assert server.ask("DBSIZE") == "0"
        server.ask("SET", redis.STREAM, "no stream")
        with pytest.raises(RuntimeError, match="WRONGTYPE"):
            redis.add(server, load, 10)
