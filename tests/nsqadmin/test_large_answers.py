"""Nodes that answer without end, with packed bytes, or with much: nsqadmin's memory has a bound."""

import collections
import contextlib
import gzip
import itertools
import socket
import threading

import pytest

from support.admin import start_nsqadmin, text_of
from support.waiting import wait_until

NODES = 8
PIECE = 256 << 10
# What nsqadmin needs by itself, all answers together, and some room for the allocator.
RSS_MAX = (128 + 256 + 64) << 20
HEAD = b"HTTP/1.1 200 OK\r\n"


def endless():
    return itertools.chain([HEAD + b"\r\n"], itertools.repeat(b" " * PIECE))


def bomb():
    packed = gzip.compress(bytes(600 << 20), 1)
    return [HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed), packed]


def huge():
    size = 60 << 20
    return itertools.chain(
        [HEAD + b"Content-Length: %d\r\n\r\n" % size], itertools.repeat(b" " * PIECE, size // PIECE)
    )


def unfolding():
    begin, rows, count, end = b'{"producers":[', b"{}," * (PIECE // 3), 240, b"{}]}"
    size = len(begin) + len(rows) * count + len(end)
    yield HEAD + b"Content-Length: %d\r\n\r\n" % size + begin
    yield from itertools.repeat(rows, count)
    yield end


class Flood:
    """Nodes that answer every request with `pieces`."""

    def __init__(self, pieces):
        self.pieces = pieces
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(NODES)]
        self.addresses = [text_of(one.getsockname()) for one in self.listeners]
        self.threads = []
        self.answered = collections.Counter()  # by address, whole or not

    def __enter__(self):
        for listener in self.listeners:
            self.start(self.accept, listener)
        return self

    def __exit__(self, *_):
        for listener in self.listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in self.threads:
            thread.join()

    def start(self, work, *given):
        self.threads.append(threading.Thread(target=work, args=given))
        self.threads[-1].start()

    def accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.start(self.answer, connection)

    def answer(self, connection):
        address = text_of(connection.getsockname())
        with connection, contextlib.suppress(OSError):
            while connection.recv(PIECE):
                try:
                    for piece in self.pieces():
                        connection.sendall(piece)
                finally:
                    self.answered[address] += 1


def peak_rss(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [endless, bomb, huge])
def test_no_answer_fills_the_memory(pieces):
    made = list(pieces()) if pieces is bomb else []
    with Flood((lambda: made) if made else pieces) as flood:
        flags = [f"--nsqd-http-address={address}" for address in flood.addresses]
        with start_nsqadmin("nsqfast", "--http-client-request-timeout=50s", *flags) as admin:
            wait_until(lambda: set(flood.answered) == set(flood.addresses), "all were heard")
            assert peak_rss(admin.process.pid) < RSS_MAX


@pytest.mark.slow
def test_what_is_decoded_of_an_answer_does_not_fill_the_memory():
    """Three bytes for each object, which takes 240: seen when the next tick asks again."""
    with Flood(unfolding) as flood:
        flags = [f"--lookupd-http-address={address}" for address in flood.addresses]
        with start_nsqadmin("nsqfast", "--http-client-request-timeout=50s", *flags) as admin:
            wait_until(
                lambda: all(flood.answered[one] > 1 for one in flood.addresses), "all asked again"
            )
            assert peak_rss(admin.process.pid) < RSS_MAX
