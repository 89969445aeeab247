"""The loops of the micro benchmarks do the work that they report."""

import pytest
from nsqfast._ext.dev import loops
from nsqfast._ext.dev.probes import live_deliveries
from nsqfast._ext.protocol.v2 import FrameDecoder, encode
from nsqfast._ext.storage.diskqueue.queue import DiskQueue
from nsqfast._ext.storage.diskqueue.syncer import Syncer

from support.core import Peer, counted_deliveries, make_registry


@pytest.fixture(autouse=True)
def no_leak():
    before = counted_deliveries()
    yield
    assert live_deliveries() == before


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path)
    yield registry
    for topic in registry.topics.sorted():
        registry.topics.delete(topic.name)
    registry.topics.close()


@pytest.fixture
def queue(tmp_path):
    syncer = Syncer()
    queue = DiskQueue(str(tmp_path), "orders", syncer, 5000, 2500)
    yield queue
    queue.delete_files()
    syncer.close()


def body(data):
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("per_turn", [1, 7, 50, 1000])
def test_frames_hold_each_message_once(per_turn):
    frames = loops.FrameLoop(50, 30)
    assert frames.encode(per_turn) == 50 * (34 + 30)
    last = FrameDecoder().feed(frames.written)
    assert len(last) == (50 % per_turn or min(per_turn, 50))
    assert {(kind, data[26:]) for kind, data in last} <= {
        (2, bytes([letter]) * 30) for letter in b"abcdefghijklmnopqrstuvwxyz"
    }
    # The second round writes the same.
    written = frames.written
    frames.encode(per_turn)
    assert frames.written == written


def test_answer_finishes_what_was_written():
    frames = loops.FrameLoop(100, 5)
    frames.encode(100)
    ids = [data[10:26] for _, data in FrameDecoder().feed(frames.written)]
    assert len(set(ids)) == 100
    stream = encode(0, b"OK") + frames.written + encode(0, b"_heartbeat_")
    lines = loops.answer(stream)
    assert lines == b"".join(b"FIN %s\n" % message_id for message_id in ids)
    total = sum(int(message_id, 16) for message_id in ids) % (1 << 64)
    assert loops.parse_commands(lines) == (100, total)


@pytest.mark.parametrize("per_batch", [1, 7, 100, 1000])
@pytest.mark.parametrize("in_flight", [0, 1, 9, 1000])
def test_records_are_written_read_and_finished(queue, per_batch, in_flight):
    """Over several files, since one holds 5000 bytes."""
    assert loops.append_records(queue, b"x" * 100, 300, per_batch) == 300
    assert (queue.depth, queue.unacked) == (300, 300)
    assert loops.read_records(queue, 100, in_flight) == (100, sum(range(1, 101)))
    assert (queue.depth, queue.unacked) == (200, 200)
    assert queue.get()[2:] == (b"x" * 100, 101)
    assert loops.read_records(queue, 1000, in_flight) == (199, sum(range(102, 301)))
    assert loops.read_records(queue, 10, in_flight) == (0, 0)
    # What was read by hand was not finished.
    assert (queue.depth, queue.unacked) == (0, 1)


def test_publishing_reaches_each_channel(registry):
    topic = registry.topics.ensure("t")
    channels = [topic.channel(name) for name in "abc"]
    assert loops.publish(topic, [], b"x" * 10, 200, 7) == (200, 0)
    assert [channel.depth for channel in channels] == [200] * 3
    assert topic.message_bytes == 2000


@pytest.mark.parametrize(("window", "per_turn"), [(50, 50), (50, 7), (7, 50)])
def test_takers_finish_what_they_get(registry, window, per_turn):
    topic = registry.topics.ensure("t")
    channels = [topic.channel(name) for name in "abc"]
    takers = [loops.Taker(channel, window) for channel in channels]
    published, finished = loops.publish(topic, takers, b"x", 200, per_turn)
    assert published == 200
    for channel, taker in zip(channels, takers, strict=True):
        assert taker.channel is channel
        assert channel.in_flight_count <= window
        assert channel.message_count == 200
    left = sum(channel.depth + channel.in_flight_count for channel in channels)
    assert finished == 3 * 200 - left
    assert (left == 0) == (window >= per_turn)
    assert len({taker.taken_sum for taker in takers}) == 1
    for channel in channels:
        channel.empty()


def test_feed_hands_over_all_of_it(registry):
    peer = Peer(registry)
    pub = b"PUB t\n" + body(b"x" * 200)
    assert loops.feed(peer.connection, b"") == 0
    assert loops.feed(peer.connection, pub) == 1
    assert loops.feed(peer.connection, pub * 999) == 1 + len(pub) * 999 // 65536
    assert peer.receive() == [(0, b"OK")] * 1000
    assert registry.topics.ensure("t").depth == 1000
