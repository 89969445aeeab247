"""How old the oldest message is: in memory, on disk, in flight; and what does not count."""

import os
import random

import pytest
from nsqfast._ext.core.clock import now
from nsqfast._ext.dev.probes import let_pass, shift_wall
from nsqfast._ext.dev.structures import put_all
from nsqfast._ext.storage.diskqueue.queue import DiskQueue
from nsqfast._ext.storage.diskqueue.reader import OldestRecord

from support.core import SECOND_NS, Peer, make_registry
from support.seeds import seeds

pytestmark = pytest.mark.usefixtures("quick_disk")

UNREADABLE = -1
RECORD_SIZE = 31  # with one byte of body
[SEED] = seeds("age", 1)


@pytest.fixture
def queue(tmp_path, syncer):
    """Three records a file."""
    queue = DiskQueue(str(tmp_path), "q", syncer, 3 * RECORD_SIZE, 2500)
    yield queue
    queue.close()


@pytest.fixture
def wall():
    """Moves the wall clock on; it is back afterwards."""
    passed = 0

    def move(seconds):
        nonlocal passed
        passed += seconds
        shift_wall(passed * SECOND_NS)

    yield move
    shift_wall(0)


def seconds(queue):
    return round(queue.age_ns() / SECOND_NS)


# -- on disk


def test_the_head_of_a_queue_on_disk(queue):
    head = OldestRecord()
    assert head.find_timestamp_ns(queue.reader) == 0
    for number in range(1, 11):
        queue.put(b"x", timestamp_ns=number)
        assert head.find_timestamp_ns(queue.reader) == 1
    for number in range(1, 11):
        # With nothing in the reader's memory, then with what it has read ahead, over all rolls.
        assert head.find_timestamp_ns(queue.reader) == number
        assert OldestRecord().find_timestamp_ns(queue.reader) == number
        ordinal, _, body, _ = queue.get()
        assert body == b"x"
        if number % 2:  # a reader whose records are not finished stays at the end of a file
            queue.finish(ordinal)
    assert head.find_timestamp_ns(queue.reader) == 0


def test_looking_leaves_everything_as_it_is(tmp_path, queue):
    dice = random.Random(SEED)
    print("seed", SEED)
    head, written, read = OldestRecord(), 0, 0
    for _ in range(2000):
        if dice.random() < 0.5:
            written += 1
            queue.put(b"x", timestamp_ns=written)
        elif (found := queue.get()) is not None:
            read += 1
            queue.finish(found[0])
        assert queue.depth == written - read
        assert head.find_timestamp_ns(queue.reader) == (read + 1 if written > read else 0)
    assert not list(tmp_path.glob("*.bad"))


def test_no_descriptor_is_left_open(queue):
    for number in range(1, 4):
        queue.put(b"x", timestamp_ns=number)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        assert OldestRecord().find_timestamp_ns(queue.reader) == 1
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("size", [0, 3, 11])
def test_what_cannot_be_read_is_unknown_and_is_looked_at_again(tmp_path, queue, size):
    queue.put(b"x", timestamp_ns=7)
    [path] = tmp_path.glob("*.diskqueue.0*.dat")
    whole = path.read_bytes()
    os.truncate(path, size)
    head = OldestRecord()
    assert head.find_timestamp_ns(queue.reader) == UNREADABLE
    path.write_bytes(whole)
    assert head.find_timestamp_ns(queue.reader) == 7


@pytest.mark.parametrize(
    "start", [bytes(12), b"\0\0\0\x05" + bytes(7) + b"\1", b"\0\0\0\x1f" + b"\xff" * 8]
)
def test_what_is_no_record_is_unknown(tmp_path, queue, start):
    queue.put(b"x", timestamp_ns=7)
    [path] = tmp_path.glob("*.diskqueue.0*.dat")
    path.write_bytes(start + path.read_bytes()[len(start) :])
    assert OldestRecord().find_timestamp_ns(queue.reader) == UNREADABLE


def test_a_file_that_is_gone_is_unknown(tmp_path, queue):
    queue.put(b"x", timestamp_ns=7)
    [path] = tmp_path.glob("*.diskqueue.0*.dat")
    moved = path.rename(tmp_path / "elsewhere")
    assert OldestRecord().find_timestamp_ns(queue.reader) == UNREADABLE
    moved.rename(path)


# -- of channels and topics


@pytest.mark.parametrize("mem_queue_size", [0, 2, 100])
def test_of_a_channel(tmp_path, wall, mem_queue_size):
    registry = make_registry(tmp_path, mem_queue_size=mem_queue_size)
    topic = registry.topics.ensure("t")
    channel = topic.channel("c")
    assert channel.age_ns() == 0
    for number in range(5):
        topic.put(b"%d" % number)
        wall(10)
    assert topic.age_ns() == 0
    assert seconds(channel) == 50
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", 2)
    first, second = [data[10:26] for kind, data in peer.receive() if kind == 2]
    # In flight they are as old as ever.
    assert seconds(channel) == 50
    peer.send(b"FIN %s\n" % second)
    peer.receive()
    assert seconds(channel) == 50
    peer.send(b"RDY 0\nFIN %s\n" % first)
    peer.receive()
    assert channel.in_flight_count == 1
    assert seconds(channel) == 30
    channel.empty()
    assert channel.age_ns() == 0
    registry.topics.close()


def test_what_is_deferred_does_not_count(tmp_path, wall):
    registry = make_registry(tmp_path)
    topic = registry.topics.ensure("t")
    topic.put(b"held", 1000)
    wall(10)
    assert topic.depth == 1
    assert topic.age_ns() == 0
    channel = topic.channel("c")
    assert channel.deferred_count == 1
    assert channel.age_ns() == 0
    topic.put(b"next")
    wall(10)
    assert seconds(channel) == 10
    registry.topics.close()


def test_what_comes_back_is_at_the_tail(tmp_path, wall):
    registry = make_registry(tmp_path)
    topic = registry.topics.ensure("t")
    channel = topic.channel("c")
    topic.put(b"first")
    wall(10)
    topic.put(b"second")
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", 1)
    [identity] = [data[10:26] for kind, data in peer.receive() if kind == 2]
    assert seconds(channel) == 10
    peer.send(b"RDY 0\nREQ %s 0\n" % identity)
    peer.receive()
    assert channel.depth == 2
    assert seconds(channel) == 0
    registry.topics.close()


@pytest.mark.parametrize("mem_queue_size", [0, 1, 100])
def test_of_a_topic_without_a_channel(tmp_path, wall, mem_queue_size):
    registry = make_registry(tmp_path, mem_queue_size=mem_queue_size)
    topic = registry.topics.ensure("t")
    for _ in range(3):
        topic.put(b"x")
        wall(5)
    assert seconds(topic) == 15
    topic.empty()
    assert topic.age_ns() == 0
    registry.topics.close()


def test_memory_tells_where_the_disk_cannot(tmp_path, wall):
    registry = make_registry(tmp_path, mem_queue_size=1)
    topic = registry.topics.ensure("t")
    topic.put(b"in memory")
    topic.put(b"on disk")
    wall(10)
    [path] = tmp_path.glob("*.diskqueue.0*.dat")
    whole = path.read_bytes()
    os.truncate(path, 0)
    assert seconds(topic) == 10
    path.write_bytes(whole)
    registry.topics.close()


def test_a_clock_that_was_set_back(tmp_path, wall):
    registry = make_registry(tmp_path)
    topic = registry.topics.ensure("t")
    topic.put(b"x")
    wall(-100)
    assert now()[0] > 0
    assert topic.age_ns() == 0
    registry.topics.close()


@pytest.mark.parametrize("consumer_count", [1, 10])
def test_of_very_many_in_flight_a_bounded_number_is_looked_at(tmp_path, wall, consumer_count):
    """An older one behind them is not seen; in the order in which they were published none is missed."""
    registry = make_registry(tmp_path, max_rdy_count=100_000)
    topic = registry.topics.ensure("t")
    channel = topic.channel("c")
    peers = [Peer(registry) for _ in range(consumer_count)]
    topic.put(b"old", 1)
    wall(100)
    put_all(topic, b"x\n" * 4097, False)
    for peer in peers:
        peer.subscribe(b"t", b"c", 5000)
        peer.receive()
    registry.timers.run(let_pass(SECOND_NS))
    wall(10)
    assert channel.in_flight_count == 4098
    assert seconds(channel) == 10
    registry.topics.close()
