"""The loops of the micro benchmarks do the work that they report."""

import random
from collections import deque

import pytest
from nsqfast._ext.core.guid import GuidFactory
from nsqfast._ext.core.ring import Ring
from nsqfast._ext.dev import loops
from nsqfast._ext.dev.probes import let_pass, live_deliveries
from nsqfast._ext.disk.queue import DiskQueue
from nsqfast._ext.disk.syncer import Syncer
from nsqfast._ext.protocol.frame import FrameDecoder, encode

from support.core import SECOND_NS, Peer, make_registry

NOW_NS = 1_750_000_000_000_000_000


@pytest.fixture(autouse=True)
def no_leak():
    before = live_deliveries()
    yield
    assert live_deliveries() == before


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path)
    yield registry
    for topic in registry.topics():
        registry.delete_topic(topic.name)
    registry.close()


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


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", (0, 0)),
        (b"FIN 00000000000000ff\nRDY 7\nPUB t\n" + body(b"x" * 300), (3, 255 + 7 + 300)),
        (b"RDY 7\nRDY 8", (1, 7)),
        (b"FIN short\nNOP\nRDY\nRDY x\n", (4, 0)),
        (b"PUB t\n\x00", (1, 0)),
    ],
)
def test_commands_name_what_they_hold(data, found):
    assert loops.parse_commands(data) == found


@pytest.mark.parametrize("step_ns", [0, 1000, 10_000_000])
def test_ids_are_those_of_the_factory(step_ns):
    factory = GuidFactory(0)
    made = [factory.make(NOW_NS + n * step_ns) for n in range(5000)]
    assert loops.make_ids(5000, NOW_NS, step_ns) == sum(made) % (1 << 64)
    assert loops.stamp(5000) == 5000


@pytest.mark.parametrize("standing", [0, 1, 100])
@pytest.mark.parametrize("together", [1, 10, 300])
def test_ring(standing, together):
    ring, model = Ring(), deque()
    for number in range(standing):
        ring.put(1000 + number)
        model.append(1000 + number)
    for _ in range(3):
        expected = 0
        for item in range(1, 301):
            model.append(item)
            if item % together == 0:
                expected += sum(model.popleft() for _ in range(together))
        assert loops.pass_through(ring, 300, together) == expected
        assert len(ring) == len(model) == standing


@pytest.mark.parametrize("standing", [1, 2, 1000])
def test_heap(standing):
    before = loops.HeapLoop(standing, 0).drain()
    heap = loops.HeapLoop(standing, 0)
    assert heap.expire(5000) == 5000
    after = heap.drain()
    assert len(before) == len(after) == standing
    assert after == sorted(after)
    assert after[0] > before[-1]
    assert heap.expire(5000) == 0


@pytest.mark.parametrize("standing", [1, 2, 1000])
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_line(standing, scattered, is_mixed):
    before = loops.InFlightQueueLoop(standing, 0, is_mixed).drain()
    line = loops.InFlightQueueLoop(standing, 0, is_mixed)
    grown_ns = line.remove_and_push(3 * standing, scattered)
    after = line.drain()
    assert line.remove_and_push(1, scattered) == 0
    assert len(before) == len(after) == standing
    assert after == sorted(after)
    assert grown_ns == sum(after) - sum(before) > 0
    if not scattered:
        assert after == [deadline + 3 * standing * 1000 for deadline in before]
    if is_mixed:
        # The shorter timeouts are due first, all of them.
        assert before[standing // 2 :][0] - before[0] >= (standing > 1) * 29 * SECOND_NS


@pytest.mark.parametrize("standing", [1, 2, 1000])
@pytest.mark.parametrize("scattered", [False, True])
def test_table(standing, scattered):
    table = loops.TableLoop(standing, 10)
    assert table.find(2000, scattered) == 2000
    assert table.find_remove_insert(2000, scattered) == 2000
    # All of them are there, the new ids included.
    assert table.find(standing, False) == len(table) == standing


def test_a_loop_without_messages_is_refused():
    for kind in (loops.FrameLoop, loops.HeapLoop, loops.InFlightQueueLoop, loops.TableLoop):
        with pytest.raises(ValueError, match="without messages"):
            kind(0, 10)


def test_turns_of_no_messages_are_refused(registry):
    for call in (
        lambda: loops.FrameLoop(1, 1).encode(0),
        lambda: loops.pass_through(Ring(), 1, 0),
        lambda: loops.publish(registry.topic("t"), [], b"x", 1, 0),
    ):
        with pytest.raises(ZeroDivisionError):
            call()


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
    topic = registry.topic("t")
    channels = [topic.channel(name) for name in "abc"]
    assert loops.publish(topic, [], b"x" * 10, 200, 7) == (200, 0)
    assert [channel.depth for channel in channels] == [200] * 3
    assert topic.message_bytes == 2000


@pytest.mark.parametrize(("window", "per_turn"), [(50, 50), (50, 7), (7, 50)])
def test_takers_finish_what_they_get(registry, window, per_turn):
    topic = registry.topic("t")
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


def test_a_taker_is_not_given_more_than_it_can_note(registry):
    """Also when what it has times out, and so is not in flight to it any more."""
    topic = registry.topic("t")
    channel = topic.channel("c")
    taker = loops.Taker(channel, 5)
    assert loops.publish(topic, [], b"x", 20, 1) == (20, 0)
    assert channel.in_flight_count == 5
    registry.run_timers(let_pass(61 * SECOND_NS))
    assert (channel.timeout_count, channel.in_flight_count, channel.depth) == (5, 0, 20)
    assert loops.publish(topic, [taker], b"x", 1, 1) == (1, 0)
    assert (channel.in_flight_count, channel.depth) == (5, 16)
    channel.empty()


def test_batches(registry):
    dice = random.Random(7)
    bodies = [b"x" * dice.randrange(1, 300) for _ in range(40)]
    data = b"".join(map(body, bodies))
    topic, peer = registry.topic("t"), Peer(registry)
    topic.channel("c")
    assert loops.publish_batch(topic, data, 40, 3) == topic.channel("c").depth == 120
    assert topic.message_bytes == 3 * sum(map(len, bodies))
    for count, cut in [(41, 0), (40, 1), (1, len(data) - 3)]:
        with pytest.raises(ValueError, match="message"):
            loops.publish_batch(topic, data[: len(data) - cut], count, 1)
    command = b"MPUB t\n" + body((40).to_bytes(4, "big") + data)
    assert loops.scan_batch(peer.session, command, 5) == 200
    assert loops.scan_batch(peer.session, command[:-1], 5) == 0
    assert topic.message_count == 120
    # The session is as it was.
    peer.send(command)
    assert peer.receive() == [(0, b"OK")]
    assert topic.message_count == 160


def test_feed_hands_over_all_of_it(registry):
    peer = Peer(registry)
    pub = b"PUB t\n" + body(b"x" * 200)
    assert loops.feed(peer.connection, b"") == 0
    assert loops.feed(peer.connection, pub) == 1
    assert loops.feed(peer.connection, pub * 999) == 1 + len(pub) * 999 // 65536
    assert peer.receive() == [(0, b"OK")] * 1000
    assert registry.topic("t").depth == 1000
