"""The load generator against a peer in the test: sockets are real, what it gets over them is chosen here."""

import array
import multiprocessing as mp
import socket
import struct
import threading
import time

import pytest
from nsqfast._ext.bench.load import Load
from nsqfast._ext.dev.null_peer import serve

from support.waiting import eventually

OK = struct.pack(">iI", 6, 0) + b"OK"
HEARTBEAT = struct.pack(">iI", 15, 0) + b"_heartbeat_"
FAR_NS = 20_000_000_000
PUB = b"PUB t\n" + struct.pack(">I", 8) + b"x" * 8


def message(number, body=b"body", attempts=1):
    data = struct.pack(">qH16s", 1, attempts, b"%016x" % number) + body
    return struct.pack(">iI", 4 + len(data), 2) + data


@pytest.fixture
def totals():
    return mp.RawArray("q", 16)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    with ours, theirs:
        yield ours, theirs


def run(load, publish_target, finish_target, peer):
    """The load in a thread beside `peer`, which plays the broker; both have ended when it returns."""
    deadline_ns = time.monotonic_ns() + FAR_NS
    thread = threading.Thread(target=load.run, args=(publish_target, finish_target, deadline_ns))
    thread.start()
    try:
        peer()
    finally:
        thread.join()


def read_exactly(peer, size):
    data = b""
    while len(data) < size:
        some = peer.recv(size - len(data))
        assert some, "the generator hung up"
        data += some
    return data


def test_a_publisher_keeps_its_window_and_its_quota(pair, totals):
    ours, theirs = pair
    load = Load(totals, 0)
    load.add_publisher(ours.fileno(), PUB, 1, 3, 10)

    def peer():
        assert read_exactly(theirs, 3 * len(PUB)) == PUB * 3
        for sent in range(3, 10):
            theirs.sendall(OK)
            assert read_exactly(theirs, len(PUB)) == PUB, sent
        theirs.sendall(HEARTBEAT + OK * 3)

    run(load, 10, 0, peer)
    assert load.error is None
    assert totals[0] == 10
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_consumer_finishes_what_it_gets_in_pieces_of_any_size(pair, totals, piece):
    ours, theirs = pair
    load = Load(totals, 1)
    load.add_consumer(ours.fileno(), 5)
    stream = b"".join(message(number, b"b" * (number % 9)) for number in range(20))
    stream += HEARTBEAT + message(20, b"z" * 300_000)
    finished = b"".join(b"FIN %016x\n" % number for number in range(20)) + b"NOP\n"
    finished += b"FIN %016x\n" % 20

    def peer():
        assert read_exactly(theirs, 6) == b"RDY 5\n"
        head = stream[:1000]
        for start in range(0, len(head), piece):
            theirs.sendall(head[start : start + piece])
        theirs.sendall(stream[1000:])
        assert read_exactly(theirs, len(finished)) == finished

    run(load, 0, 21, peer)
    assert load.error is None
    assert list(totals[8:12]) == [0, 21, 21, 0]
    assert totals[13] == sum(number % 9 for number in range(20)) + 300_000


def test_first_deliveries_are_requeued(pair, totals):
    ours, theirs = pair
    load = Load(totals, 0)
    load.add_consumer(ours.fileno(), 1, 250)

    def peer():
        read_exactly(theirs, 6)
        theirs.sendall(message(7))
        expected = b"REQ %016x 250\n" % 7
        assert read_exactly(theirs, len(expected)) == expected
        theirs.sendall(message(7, attempts=2))
        assert read_exactly(theirs, 21) == b"FIN %016x\n" % 7

    run(load, 0, 1, peer)
    assert list(totals[:4]) == [0, 2, 1, 1]


def test_paced_commands_name_the_moment_they_were_meant_for(pair, totals):
    ours, theirs = pair
    load = Load(totals, 0)
    load.add_paced(ours.fileno(), PUB, len(PUB) - 8, 1_000_000, 20)
    moments = []

    def peer():
        for _ in range(20):
            command = read_exactly(theirs, len(PUB))
            assert command[:-8] == PUB[:-8]
            moments.extend(struct.unpack(">q", command[-8:]))
            assert time.monotonic_ns() >= moments[-1]
            theirs.sendall(OK)

    run(load, 20, 0, peer)
    assert load.error is None
    assert moments == [load.started_ns + number * 1_000_000 for number in range(20)]


def test_an_ok_counts_from_the_moment_its_command_was_due(pair, totals):
    ours, theirs = pair
    load = Load(totals, 0)
    load.add_paced(ours.fileno(), PUB, len(PUB) - 8, 1_000_000, 3)
    samples = array.array("q", [-1] * 4)
    load.record_answers(samples)
    due_ns, answered_ns = [], []

    def peer():
        for _ in range(3):
            due_ns.extend(struct.unpack(">q", read_exactly(theirs, len(PUB))[-8:]))
        for _ in range(3):
            answered_ns.append(time.monotonic_ns())
            theirs.sendall(OK)

    run(load, 3, 0, peer)
    assert load.answers_sampled == 3
    ended_ns = time.monotonic_ns()
    for sample, due, answered in zip(samples, due_ns, answered_ns, strict=False):
        assert answered - due <= sample <= ended_ns - due
    assert samples[3] == -1


def test_latency_is_taken_from_that_moment(pair, totals):
    ours, theirs = pair
    load = Load(totals, 0)
    load.add_consumer(ours.fileno(), 10)
    samples = array.array("q", [-1] * 3)
    load.record(samples)
    before_ns = time.monotonic_ns()

    def peer():
        read_exactly(theirs, 7)
        for number in range(5):
            theirs.sendall(message(number, struct.pack(">q", before_ns) + b"rest"))

    run(load, 0, 5, peer)
    assert load.sampled == 3
    assert all(0 < sample <= time.monotonic_ns() - before_ns for sample in samples)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (struct.pack(">iI", 13, 1) + b"E_INVALID", "E_INVALID"),
        (struct.pack(">iI", 3, 0) + b"abcd", "not a frame of the protocol"),
        (struct.pack(">iI", 9, 0) + b"hello", "a response that nobody asked for"),
        (struct.pack(">iI", 9, 2) + b"short", "a message frame without a message"),
        (None, "connection closed by the broker"),
    ],
)
def test_what_ends_a_run(pair, totals, answer, error):
    ours, theirs = pair
    load = Load(totals, 0)
    load.add_publisher(ours.fileno(), PUB, 1, 1)

    def peer():
        read_exactly(theirs, len(PUB))
        if answer:
            theirs.sendall(answer)
        else:
            theirs.close()

    run(load, 1 << 61, 0, peer)
    assert load.error == error


def test_the_deadline_ends_a_run_with_every_answer(pair, totals):
    ours, theirs = pair
    load = Load(totals, 0)
    # Four in all: an answer that comes within its last look at the time would make room for more, which has no answer.
    load.add_publisher(ours.fileno(), PUB, 1, 4, 4)
    deadline_ns = time.monotonic_ns() + 50_000_000
    thread = threading.Thread(target=load.run, args=(1 << 61, 0, deadline_ns))
    thread.start()
    # Nobody answers until the time is over.
    assert read_exactly(theirs, 4 * len(PUB)) == PUB * 4
    eventually(lambda: time.monotonic_ns() > deadline_ns)
    theirs.sendall(OK * 4)
    thread.join()
    assert load.error is None
    assert totals[0] == 4


def test_workers_stop_at_a_common_count(totals):
    pairs = [socket.socketpair() for _ in range(2)]
    loads = [Load(totals, index) for index in range(2)]
    deadline_ns = time.monotonic_ns() + FAR_NS
    for load, (ours, _) in zip(loads, pairs, strict=True):
        ours.setblocking(False)
        load.add_consumer(ours.fileno(), 10)
    threads = [threading.Thread(target=load.run, args=(0, 3, deadline_ns)) for load in loads]
    for thread in threads:
        thread.start()
    pairs[0][1].sendall(message(1) + message(2))
    pairs[1][1].sendall(message(3))
    for thread in threads:
        thread.join()
    assert totals[2] + totals[10] == 3
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda load: load.add_publisher(0, b"", 1, 1),
        lambda load: load.add_publisher(0, PUB, 1, 0),
        lambda load: load.add_paced(0, PUB, len(PUB) - 7, 1),
        lambda load: load.add_paced(0, PUB, 0, 0),
    ],
)
def test_what_cannot_be_done(totals, wrong):
    with pytest.raises(ValueError, match="command"):
        wrong(Load(totals, 0))


def test_the_sink_answers_by_size():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        thread = threading.Thread(target=serve, args=(listener.fileno(), len(PUB), 8, 1.0))
        thread.start()
        with socket.create_connection(listener.getsockname(), 5) as publisher:
            publisher.sendall(b"  V2IDENTIFY\n" + struct.pack(">I", 2) + b"{}")
            assert read_exactly(publisher, 10) == struct.pack(">iI", 6, 0) + b"{}"
            publisher.sendall(PUB * 5 + PUB[:5])
            assert read_exactly(publisher, 50) == OK * 5
            publisher.sendall(PUB[5:])
            assert read_exactly(publisher, 10) == OK
        with socket.create_connection(listener.getsockname(), 5) as consumer:
            consumer.sendall(b"  V2SUB t c\nRDY 1\n")
            assert read_exactly(consumer, 10) == OK
            frame = read_exactly(consumer, 8 + 26 + 8)
            assert struct.unpack(">iI", frame[:8]) == (4 + 26 + 8, 2)
            assert read_exactly(consumer, len(frame) * 1000) == frame * 1000
        thread.join()
