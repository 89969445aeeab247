"""Pictures of queues: what they show is what would come next, and nothing comes otherwise for their sake."""

import contextlib
import itertools
import os
import random
import threading
import time

import pytest
from nsqfast._ext.broker.snapshot import (
    LIMIT_MAX,
    NEEDLE_SIZE_MAX,
    OFFSET_MAX,
    PIECE_SIZE_MAX,
    Snapshot,
)
from nsqfast._ext.core.clock import now
from nsqfast._ext.dev.probes import let_pass, live_deliveries
from nsqfast._ext.dev.structures import put_all
from nsqfast._ext.storage.diskqueue.queue import DiskQueue
from nsqfast._ext.storage.diskqueue.scan import DiskScan
from nsqfast._ext.storage.diskqueue.syncer import Syncer

from support.core import SECOND_NS, Peer, counted_deliveries, make_registry
from support.peek import bodies, complete, look_at_all, rows
from support.seeds import seeds

pytestmark = pytest.mark.usefixtures("quick_disk")

SEEDS = seeds("snapshot", 3)
HOUR_MS = 3_600_000
MEMORY_SIZES = [0, 3, 10000]


@pytest.fixture
def open_registry(tmp_path):
    """Registries on one folder, closed at the end."""
    registries = []

    def make(**changed):
        registries.append(make_registry(tmp_path, **changed))
        return registries[-1]

    yield make
    for registry in registries:
        registry.topics.close()


def channel_of(registry, topic="t", channel="c"):
    return registry.topics.ensure(topic).channel(channel)


def identity(row):
    return row["id"].encode()


# -- against a broker that nobody looks at


class Broker:
    """A registry and its peers; what is done is told in words that mean the same to two of them."""

    def __init__(self, folder, **changed):
        self.folder, self.changed = folder, changed
        folder.mkdir()
        self.delivered = []  # (attempts, body), in the order in which they came
        self.open()

    def open(self):
        self.registry = make_registry(self.folder, msg_timeout_ns=10**6 * SECOND_NS, **self.changed)
        self.topic = self.registry.topics.ensure("t")
        self.channel = self.topic.channel("c")
        self.consumers = {}
        self.in_flight = {}  # body -> (consumer's number, id)

    def publish(self, body, defer_ms):
        self.topic.put(body, defer_ms)

    def join(self, number, rdy):
        self.consumers[number] = Peer(self.registry)
        self.consumers[number].subscribe(b"t", b"c", rdy)

    def leave(self, number):
        self.consumers.pop(number).close()
        self.in_flight = {b: who for b, who in self.in_flight.items() if who[0] != number}

    def answer(self, body, command, tail):
        number, message_id = self.in_flight.pop(body)
        self.consumers[number].send(b"%s %s%s\n" % (command, message_id, tail))

    def let_pass(self, now_ns):
        for peer in self.consumers.values():
            peer.send(b"NOP\n")
        self.registry.timers.run(now_ns)

    def empty(self):
        self.channel.empty()
        self.in_flight = {}

    def restart(self):
        for peer in self.consumers.values():
            peer.close()
        self.close()
        self.open()

    def close(self):
        self.registry.topics.close()

    def look(self):
        self.registry.turn.end()
        for number, peer in self.consumers.items():
            for kind, data in peer.receive():
                if kind == 2:
                    self.delivered.append((int.from_bytes(data[8:10], "big"), data[26:]))
                    self.in_flight[data[26:]] = (number, data[10:26])

    def figures(self):
        channel = self.channel
        return (
            channel.depth,
            channel.backend_depth,
            channel.in_flight_count,
            channel.deferred_count,
            channel.requeue_count,
            channel.message_count,
            channel.timeout_count,
        )

    def drain(self):
        """All that is left, in its order."""
        self.let_pass(let_pass(2 * HOUR_MS * 1_000_000))
        self.join(0, 2500)
        self.look()


class Pair:
    """The same is done to a broker that is looked at and to one that is not."""

    def __init__(self, folder, dice, **changed):
        self.dice = dice
        self.watched, self.alone = self.both = [
            Broker(folder / name, **changed) for name in ("watched", "alone")
        ]
        self.published = self.joined = 0

    def do(self, name, *arguments):
        for broker in self.both:
            getattr(broker, name)(*arguments)
        for broker in self.both:
            broker.look()

    def step(self):
        dice, watched = self.dice, self.watched
        number = dice.random()
        if number < 0.45:
            self.published += 1
            body = b"%d " % self.published + dice.randbytes(dice.choice([0, 9, 90, 900]))
            self.do("publish", body, dice.choice([0, 0, 0, 50_000, 90_000]))
        elif number < 0.8 and watched.in_flight:
            body = dice.choice(sorted(watched.in_flight))
            answers = [(b"FIN", b""), (b"FIN", b""), (b"REQ", b" 0"), (b"REQ", b" 70000")]
            self.do("answer", body, *dice.choice(answers))
        elif number < 0.88:
            self.joined += 1
            self.do("join", self.joined, dice.randrange(6))
        elif number < 0.93 and watched.consumers:
            self.do("leave", dice.choice(sorted(watched.consumers)))
        elif number < 0.97:
            self.do("let_pass", let_pass(31 * SECOND_NS))
        elif number < 0.975:
            self.do("empty")
        elif number < 0.985:
            self.do("restart")

    def compare(self):
        """What is shown is what the books say, and looking changed nothing of it."""
        broker, channel = self.watched, self.watched.channel
        before = broker.figures()
        limit = self.dice.choice([1, 7, LIMIT_MAX]) if channel.depth < 50 else LIMIT_MAX
        ready = look_at_all(channel, "ready", limit)
        in_flight = look_at_all(channel, "in_flight", limit)
        deferred = look_at_all(channel, "deferred", limit)
        assert (len(ready), len(in_flight), len(deferred)) == (before[0], before[2], before[3])
        assert sum(row["where"] == "disk" for row in ready) == before[1]
        shown = {row["piece"]: identity(row) for row in in_flight}
        assert shown == {body: who[1] for body, who in broker.in_flight.items()}
        for row in in_flight:
            assert row["consumer"] is broker.consumers[broker.in_flight[row["piece"]][0]].session
        for found in (in_flight, deferred):
            # Pages read two clocks anew, one after the other, and a busy machine may stop in between.
            due = [row["due_ns"] for row in found]
            assert all(one <= other + SECOND_NS // 2 for one, other in itertools.pairwise(due))
        assert broker.figures() == before == self.alone.figures()
        assert broker.delivered == self.alone.delivered
        return ready


@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
@pytest.mark.parametrize("memory", MEMORY_SIZES, ids=lambda n: f"mem={n}")
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed={seed}")
def test_who_is_looked_at_does_the_same(tmp_path, seed, memory, durable):
    before = counted_deliveries()
    pair = Pair(
        tmp_path,
        random.Random(seed),
        mem_queue_size=memory,
        max_bytes_per_file=3000,
        durable="always" if durable else "off",
    )
    for _ in range(700):
        pair.step()
        ready = pair.compare()
    waiting = bodies(ready)
    for broker in pair.both:
        broker.delivered.clear()
        broker.drain()
    assert pair.watched.delivered == pair.alone.delivered
    # In the order that the last look showed, whatever came due behind it.
    assert [body for _, body in pair.watched.delivered][: len(waiting)] == waiting
    attempts = {row["piece"]: row["attempts"] + 1 for row in ready}
    assert all(attempts.get(body, n) == n for n, body in pair.watched.delivered)
    for broker in pair.both:
        for peer in broker.consumers.values():
            peer.close()
        broker.close()
    del pair, broker, ready
    assert live_deliveries() <= before


# -- the queue in memory and on disk


@pytest.mark.parametrize("memory", MEMORY_SIZES)
def test_any_page_of_a_queue(open_registry, memory):
    registry = open_registry(mem_queue_size=memory, max_bytes_per_file=1000)
    channel = channel_of(registry)
    published = [b"%d" % number for number in range(500)]
    for body in published:
        registry.topics.ensure("t").put(body)
    for offset in (0, 1, 2, 3, 4, 77, 480, 499, 500, 501, OFFSET_MAX):
        for limit in (1, 2, 20, LIMIT_MAX):
            snapshot = complete(channel, limit=limit, offset=offset)
            page = published[offset : offset + limit]
            assert bodies(rows(snapshot)) == page
            assert snapshot.scanned == len(page)
            assert snapshot.is_complete == (offset + limit >= 500)
            assert snapshot.next_offset == (None if snapshot.is_complete else offset + limit)
            assert snapshot.depth == 500


def test_what_a_row_says(open_registry):
    registry = open_registry(mem_queue_size=1, msg_timeout_ns=60 * SECOND_NS)
    topic, channel = registry.topics.ensure("t"), channel_of(registry)
    before_ns = now()[0]
    for body in (b"one", b"two"):
        topic.put(body)
    topic.put(b"later", 5000)
    first, second = rows(complete(channel))
    assert (first["piece"], first["where"]) == (b"one", "memory")
    assert (second["piece"], second["where"]) == (b"two", "disk")
    for row in (first, second):
        assert before_ns <= row["timestamp_ns"] <= now()[0]
        assert (row["attempts"], row["size"]) == (0, 3)
        assert row["due_ns"] is row["consumer"] is None
    [deferred] = rows(complete(channel, "deferred"))
    assert (deferred["where"], deferred["attempts"], deferred["consumer"]) == ("deferred", 0, None)
    assert abs(deferred["due_ns"] - before_ns - 5 * SECOND_NS) < SECOND_NS
    consumer = Peer(registry)
    consumer.subscribe(b"t", b"c", 1)
    [got] = [data for kind, data in consumer.receive() if kind == 2]
    [in_flight] = rows(complete(channel, "in_flight"))
    assert (in_flight["where"], in_flight["attempts"]) == ("in_flight", 1)
    assert in_flight["consumer"] is consumer.session
    assert identity(in_flight) == got[10:26] == identity(first)
    assert abs(in_flight["due_ns"] - before_ns - 60 * SECOND_NS) < SECOND_NS
    consumer.send(b"REQ %s 0\n" % got[10:26])
    consumer.close()
    assert [row["attempts"] for row in rows(complete(channel))][-1] == 1


@pytest.mark.parametrize("memory", [0, 10000])
def test_no_more_of_a_body_than_is_asked_for(open_registry, memory):
    registry = open_registry(mem_queue_size=memory, max_msg_size=2 << 20)
    channel = channel_of(registry)
    large = random.Random(1).randbytes(1 << 20)
    for body in (large, b"x", b"", large[:PIECE_SIZE_MAX], large[: PIECE_SIZE_MAX + 1]):
        registry.topics.ensure("t").put(body)
    for piece_max in (0, 1, 1000, PIECE_SIZE_MAX):
        found = rows(complete(channel, piece_max=piece_max))
        assert [row["size"] for row in found] == [1 << 20, 1, 0, PIECE_SIZE_MAX, PIECE_SIZE_MAX + 1]
        pieces = [body[:piece_max] for body in (large, b"x", b"", large, large)]
        assert bodies(found) == pieces


@pytest.mark.parametrize("memory", MEMORY_SIZES)
def test_a_filter_finds_what_contains_it(open_registry, memory):
    registry = open_registry(mem_queue_size=memory, max_bytes_per_file=4000, max_msg_size=2 << 20)
    channel = channel_of(registry)
    dice = random.Random(SEEDS[0])
    published = [
        dice.randbytes(dice.choice([0, 5, 300])) + b"\0%d\xff" % number for number in range(300)
    ]
    needle = b"\x00needle\xfe"
    # Over the border of what is read at once, at the very end, and past what is shown.
    for size in (131072 - 30 - 4, 200_000, 131072 * 2, 1 << 20):
        published.insert(dice.randrange(300), bytes(size) + needle)
    for body in published:
        registry.topics.ensure("t").put(body)
    for wanted in (b"\x007\xff", b"1", needle, b"\0", b"nowhere", bytes(NEEDLE_SIZE_MAX)):
        expected = [body for body in published if wanted in body]
        found, offset = [], 0
        while offset is not None:
            snapshot = complete(channel, limit=LIMIT_MAX, offset=offset, needle=wanted)
            found += rows(snapshot)
            offset = snapshot.next_offset
        assert bodies(found) == [body[:PIECE_SIZE_MAX] for body in expected]


@pytest.mark.parametrize("memory", [0, 30000])
def test_a_filter_looks_at_ten_thousand_and_says_where_it_stopped(open_registry, memory):
    registry = open_registry(mem_queue_size=memory)
    channel = channel_of(registry)
    put_all(
        registry.topics.ensure("t"), b"\n".join(b"%d." % number for number in range(20500)), False
    )
    snapshot = complete(channel, needle=b"15000.")
    assert (len(snapshot), snapshot.scanned, snapshot.next_offset) == (0, 10000, 10000)
    assert not snapshot.is_complete
    assert snapshot.remark == "10000 messages were looked at"
    snapshot = complete(channel, needle=b"15000.", offset=10000)
    assert bodies(rows(snapshot)) == [b"15000."]
    assert (snapshot.scanned, snapshot.next_offset, snapshot.is_complete) == (10000, None, False)
    snapshot = complete(channel, needle=b"9.", limit=3)
    assert bodies(rows(snapshot)) == [b"9.", b"19.", b"29."]
    assert (snapshot.scanned, snapshot.next_offset) == (30, 30)


@pytest.mark.parametrize("memory", MEMORY_SIZES)
def test_from_a_time_on(open_registry, memory):
    """Requeued messages stand behind younger ones, and have their time."""
    registry = open_registry(mem_queue_size=memory, max_bytes_per_file=4000)
    topic, channel = registry.topics.ensure("t"), channel_of(registry)
    dice = random.Random(SEEDS[0])
    for number in range(300):
        topic.put(b"%d " % number + bytes(dice.randrange(300)))
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", 40)
    registry.turn.end()
    for _, data in peer.receive():
        if dice.random() < 0.5:
            peer.send(b"REQ %s 0\n" % data[10:26])
    for state in ("ready", "in_flight"):
        shown = look_at_all(channel, state)
        for since_ns in (0, *(row["timestamp_ns"] + step for row in shown[::7] for step in (0, 1))):
            for needle in (b"", b"7"):
                wanted = {"needle": needle, "since_ns": since_ns, "limit": dice.choice([3, 100])}
                snapshot = complete(channel, state, **wanted)
                found = rows(snapshot)
                while snapshot.next_place or snapshot.next_offset:
                    place, offset = snapshot.next_place, snapshot.next_offset
                    wanted |= {"place": place} if place else {"offset": offset}
                    snapshot = complete(channel, state, **wanted)
                    found += rows(snapshot)
                assert bodies(found) == [
                    row["piece"]
                    for row in shown
                    if row["timestamp_ns"] >= since_ns and needle in row["piece"]
                ]
    peer.close()


def test_what_came_long_ago_is_passed_on_disk_without_its_body(open_registry):
    registry = open_registry(mem_queue_size=0, max_msg_size=2 << 20)
    channel = channel_of(registry)
    for _ in range(70):
        registry.topics.ensure("t").put(bytes(1 << 20))
    put_all(
        registry.topics.ensure("t"), b"\n".join(b"%d." % number for number in range(20500)), False
    )
    registry.topics.ensure("t").put(b"young")
    since_ns = time.time_ns()
    registry.topics.ensure("t").put(b"last")
    snapshot = complete(channel, needle=b"as", since_ns=since_ns)
    assert (len(snapshot), snapshot.scanned) == (0, 10000)
    snapshot = complete(channel, since_ns=since_ns)
    assert bodies(rows(snapshot)) == [b"last"]
    assert (snapshot.scanned, snapshot.is_complete) == (20572, True)


@pytest.mark.parametrize("memory", [0, 10000])
def test_a_filter_searches_so_many_bytes_and_no_more(open_registry, memory):
    registry = open_registry(mem_queue_size=memory)
    channel = channel_of(registry)
    for _ in range(70):
        registry.topics.ensure("t").put(bytes(1 << 20))
    since_ns = time.time_ns()
    registry.topics.ensure("t").put(b"needle")
    snapshot = complete(channel, needle=b"needle", since_ns=since_ns)  # of the old ones none is
    assert (bodies(rows(snapshot)), snapshot.scanned) == ([b"needle"], 71)
    snapshot = complete(channel, needle=b"needle")
    assert (len(snapshot), snapshot.scanned, snapshot.next_offset) == (0, 64, 64)
    assert snapshot.remark == "64 MiB of bodies were searched"
    assert bodies(rows(complete(channel, needle=b"needle", offset=64))) == [b"needle"]


@pytest.mark.parametrize("memory", MEMORY_SIZES)
def test_pages_that_go_on_at_places(open_registry, memory):
    """However far: an offset ends at ten thousand."""
    registry = open_registry(mem_queue_size=memory, max_bytes_per_file=20_000)
    topic, channel = registry.topics.ensure("t"), channel_of(registry)
    published = [b"%d" % number for number in range(OFFSET_MAX + 2500)]
    put_all(topic, b"\n".join(published), False)
    for needle, limit, cut in ((b"", LIMIT_MAX, 0), (b"", LIMIT_MAX, 7), (b"77", LIMIT_MAX, 1)):
        found, place = [], None
        while True:
            snapshot = complete(channel, limit=limit, needle=needle, place=place)
            if 0 < cut < len(snapshot):
                snapshot.keep_first(cut)
            page = bodies(rows(snapshot))
            found += page[:cut] if cut and len(page) > cut else page
            place = snapshot.next_place
            assert snapshot.is_complete == (place is None)
            if place is None:
                break
        assert found == [body for body in published if needle in body]


@pytest.mark.parametrize("memory", MEMORY_SIZES)
def test_places_in_a_queue_that_moves(open_registry, memory):
    """What comes between two pages is not seen twice, and nothing that stays is missed."""
    registry = open_registry(mem_queue_size=memory, max_bytes_per_file=1000)
    topic, channel = registry.topics.ensure("t"), channel_of(registry)
    for number in range(200):
        topic.put(b"%d" % number)
    consumer, seen, place, taken = Peer(registry), [], None, 0
    consumer.subscribe(b"t", b"c", 0)
    for _ in range(300):
        snapshot = complete(channel, limit=3, place=place)
        seen += bodies(rows(snapshot))
        place = snapshot.next_place
        if place is None:
            break
        taken += 1
        consumer.send(b"RDY %d\n" % taken)
        topic.put(b"new")
    numbers = [int(body) for body in seen if body != b"new"]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 199
    assert set(range(200)) - set(numbers) <= set(range(taken))
    consumer.close()
    channel.empty()
    for body in (b"x", b"y"):
        topic.put(body)
    assert bodies(rows(complete(channel, place=(0, 0, 0, 0, 0)))) == [b"x", b"y"]


@pytest.mark.parametrize("memory", MEMORY_SIZES)
def test_what_is_cut_off_a_snapshot_is_in_the_next(open_registry, memory):
    registry = open_registry(mem_queue_size=memory)
    channel = channel_of(registry)
    published = [b"%d" % number for number in range(200)]
    for body in published:
        registry.topics.ensure("t").put(body)
    for needle in (b"", b"7"):
        expected = [body for body in published if needle in body]
        for count in (1, 2, 3, 5, 9):
            found, offset = [], 0
            while offset is not None:
                snapshot = complete(channel, limit=10, offset=offset, needle=needle)
                if len(snapshot) > count:
                    snapshot.keep_first(count)
                    assert not snapshot.is_complete
                    assert snapshot.remark == "no more bodies fit into one answer"
                    assert snapshot.next_offset == offset + snapshot.scanned
                    found += rows(snapshot)[:count]
                else:
                    found += rows(snapshot)
                offset = snapshot.next_offset
            assert bodies(found) == expected


def test_a_topic_without_a_channel_and_a_paused_one(open_registry):
    registry = open_registry(mem_queue_size=2)
    topic = registry.topics.ensure("t")
    for body in (b"one", b"two", b"three"):
        topic.put(body)
    topic.put(b"later", HOUR_MS)
    found = look_at_all(topic, limit=1)
    assert bodies(found) == [b"later", b"one", b"two", b"three"]
    assert [row["where"] for row in found] == ["deferred", "memory", "memory", "disk"]
    assert found[0]["due_ns"] is None  # its delay begins with the first channel
    assert topic.depth == 4
    channel = topic.channel("c")
    registry.timers.run(now()[1])
    assert look_at_all(topic) == []
    assert bodies(look_at_all(channel)) == [b"one", b"two", b"three"]
    topic.pause()
    topic.put(b"four")
    assert bodies(look_at_all(topic)) == [b"four"]


def test_an_ephemeral_channel_and_one_that_is_deleted(open_registry):
    registry = open_registry(mem_queue_size=3)
    channel = channel_of(registry, channel="c#ephemeral")
    for number in range(5):
        registry.topics.ensure("t").put(b"%d" % number)
    assert bodies(look_at_all(channel)) == [b"0", b"1", b"2"]
    registry.topics.ensure("t").delete_channel("c#ephemeral")
    for state in ("ready", "in_flight", "deferred"):
        assert look_at_all(channel, state) == []


def test_a_snapshot_stays_as_it_was_taken(open_registry):
    registry = open_registry(mem_queue_size=100)
    channel = channel_of(registry)
    published = [b"%d" % number + bytes(1000) for number in range(150)]
    for body in published:
        registry.topics.ensure("t").put(body)
    snapshots = [
        Snapshot(channel, "ready", limit=50, offset=offset, needle=b"\0") for offset in range(101)
    ]
    channel.empty()
    for number in range(1000):
        registry.topics.ensure("t").put(b"other" * 200 + b"%d" % number)
    for offset, snapshot in enumerate(snapshots):
        snapshot.complete()
        # What stood on disk is gone with its file, unless that was open already.
        found = bodies(rows(snapshot))
        assert found == published[offset : offset + 50]


def test_snapshots_are_completed_while_the_queue_goes_on(open_registry):
    """Threads search and read, the loop publishes and finishes: everything that is shown was published."""
    registry = open_registry(mem_queue_size=50, max_bytes_per_file=2000)
    channel = channel_of(registry)
    consumer = Peer(registry)
    consumer.subscribe(b"t", b"c", 20)
    dice = random.Random(SEEDS[0])
    published, number = set(), 0
    for _ in range(150):
        for _ in range(dice.randrange(60)):
            body = b"%d " % number + b"x" * dice.randrange(100)
            number += 1
            published.add(body)
            registry.topics.ensure("t").put(body)
        snapshots = [
            Snapshot(channel, "ready", limit=100, offset=offset, needle=b" ")
            for offset in (0, 10, 40, 60, 200)
        ]
        threads = [threading.Thread(target=snapshot.complete) for snapshot in snapshots]
        for thread in threads:
            thread.start()
        for _ in range(10):
            got = [data[10:26] for kind, data in consumer.receive() if kind == 2]
            consumer.send(b"".join(b"FIN %s\n" % one for one in got))
        for thread, snapshot in zip(threads, snapshots, strict=True):
            thread.join()
            assert set(bodies(rows(snapshot))) <= published
            assert snapshot.remark in (
                None,
                "a file on disk is not there any more; its messages may have been delivered meanwhile",
            )
    consumer.close()


# -- deferred and in flight


def test_a_hundred_thousand_deferred_in_the_order_of_their_time(open_registry):
    registry = open_registry()
    channel = channel_of(registry)
    dice = random.Random(SEEDS[0])
    delays = {}
    for number in range(100_000):
        body = b"%d" % number
        delays[body] = 60_000 * (1 + number)  # further apart than all the putting takes
    for body in dice.sample(sorted(delays), len(delays)):
        registry.topics.ensure("t").put(body, delays[body])
    expected = sorted(delays, key=delays.__getitem__)
    for offset in (0, 50, 999, OFFSET_MAX):
        snapshot = complete(channel, "deferred", offset=offset, limit=LIMIT_MAX)
        assert bodies(rows(snapshot)) == expected[offset : offset + LIMIT_MAX]
        assert (snapshot.depth, snapshot.next_offset) == (
            100_000,
            None if offset == OFFSET_MAX else offset + LIMIT_MAX,
        )
    snapshot = complete(channel, "deferred", offset=2000, needle=b"9999")
    assert bodies(rows(snapshot)) == [b"9999"]
    # From the front, it is ten thousand that are looked at; or a page.
    assert (snapshot.scanned, snapshot.next_offset) == (8000, 10000)
    snapshot = complete(channel, "deferred", offset=OFFSET_MAX, limit=50, needle=b"1001")
    assert bodies(rows(snapshot)) == [b"10010", *(b"1001%d" % n for n in range(1, 10))]
    assert (snapshot.scanned, snapshot.next_offset, snapshot.is_complete) == (50, None, False)


def test_in_flight_with_different_timeouts(open_registry):
    """Those that time out first come first, from the list and from the heap beside it."""
    registry = open_registry()
    channel = channel_of(registry)
    peers = []
    for timeout_ms in (50_000, 10_000, 30_000, 20_000):
        peer = Peer(registry)
        body = b'{"msg_timeout":%d}' % timeout_ms
        peer.send(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body)
        peer.subscribe(b"t", b"c", 50)
        peers.append((timeout_ms, peer))
    for number in range(200):
        registry.topics.ensure("t").put(b"%d" % number)
    order = {peer.session: timeout_ms for timeout_ms, peer in peers}
    assert channel.in_flight_count == 200
    found = look_at_all(channel, "in_flight", limit=7)
    assert len({row["piece"] for row in found}) == 200
    assert [order[row["consumer"]] for row in found] == (
        [10_000] * 50 + [20_000] * 50 + [30_000] * 50 + [50_000] * 50
    )
    for _, peer in peers:
        peer.close()


# -- damage, and what else can be wrong with files


@contextlib.contextmanager
def disk_queue(folder, size_max):
    syncer = Syncer()
    queue = DiskQueue(str(folder), "t:c", syncer, size_max, 2500)
    yield queue
    queue.close()
    syncer.close()


def files(folder):
    return sorted(folder.glob("*.diskqueue.0*.dat"))


def test_damage_ends_a_snapshot_and_is_left_to_the_reader(open_registry, tmp_path):
    registry = open_registry(mem_queue_size=0, max_bytes_per_file=400)
    channel = channel_of(registry)
    for number in range(100):
        registry.topics.ensure("t").put(b"%03d" % number)
    path = files(tmp_path)[2]
    data = bytearray(path.read_bytes())
    per_file = len(data) // 33
    data[33 * 3 : 33 * 3 + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    whole = 2 * per_file + 3
    snapshot = complete(channel, limit=LIMIT_MAX)
    assert bodies(rows(snapshot)) == [b"%03d" % number for number in range(whole)]
    assert (snapshot.is_complete, snapshot.next_offset) == (False, None)
    assert "damaged" in snapshot.remark
    assert len(complete(channel, offset=whole)) == 0
    assert not list(tmp_path.glob("*.bad"))
    assert channel.depth == 100


@pytest.mark.parametrize("change", ["cut", "remove"])
def test_files_that_somebody_changed(open_registry, tmp_path, change):
    registry = open_registry(mem_queue_size=0, max_bytes_per_file=400)
    channel = channel_of(registry)
    for number in range(100):
        registry.topics.ensure("t").put(b"%03d" % number)
    path = files(tmp_path)[1]
    if change == "cut":
        os.truncate(path, 50)
    else:
        path.unlink()
    snapshot = complete(channel, limit=LIMIT_MAX)
    assert bodies(rows(snapshot)) == [b"%03d" % number for number in range(len(snapshot))]
    assert len(snapshot) == 12 + (change == "cut")
    assert not snapshot.is_complete
    assert ("not there" if change == "remove" else "damaged") in snapshot.remark


def test_a_folder_that_cannot_be_read(open_registry, tmp_path, monkeypatch):
    registry = open_registry(mem_queue_size=0, max_bytes_per_file=400)
    channel = channel_of(registry)
    for number in range(100):
        registry.topics.ensure("t").put(b"%03d" % number)
    path = files(tmp_path)[1]
    path.unlink()
    path.symlink_to(path.name)
    snapshot = complete(channel, limit=LIMIT_MAX)
    assert len(snapshot) == 12
    assert snapshot.remark == "a file on disk cannot be read: too many levels of symbolic links"


def test_records_that_are_finished_or_deferred_are_not_shown(tmp_path):
    with disk_queue(tmp_path, 300) as queue:
        for number in range(40):
            queue.put(b"%d" % number, id=number + 1, taken=number % 5 == 3)
        ordinals = [queue.get()[0] for _ in range(20)]
        for ordinal in ordinals[1::2]:
            queue.finish(ordinal)
        queue.position.sync_meta()
        for path in list(tmp_path.iterdir()):
            (tmp_path / "copy").mkdir(exist_ok=True)
            os.link(path, tmp_path / "copy" / path.name)
    # As after a kill: read records that are not finished wait again, those behind them that are finished do not.
    registry = make_registry(tmp_path / "copy", mem_queue_size=0)
    channel = channel_of(registry)
    shown = bodies(look_at_all(channel))
    assert len(shown) == channel.depth
    consumer = Peer(registry)
    consumer.subscribe(b"t", b"c", 100)
    assert [data[26:] for kind, data in consumer.receive() if kind == 2] == shown
    consumer.close()
    registry.topics.close()


@pytest.mark.slow
def test_no_end_of_records_that_do_not_wait(open_registry):
    """One is ready, a quarter of a million behind it are deferred, then comes another."""
    registry = open_registry(mem_queue_size=0)
    topic, channel = registry.topics.ensure("t"), channel_of(registry)
    topic.put(b"first")
    for _ in range(263_000):
        topic.put(b"later", HOUR_MS)
    topic.put(b"last")
    snapshot = complete(channel)
    assert (snapshot.depth, bodies(rows(snapshot))) == (2, [b"first"])
    assert not snapshot.is_complete
    assert snapshot.next_offset is None
    assert snapshot.remark == "too many records on disk are finished or deferred already"


def test_ids_that_nsq_never_wrote(open_registry, tmp_path):
    """They are shown as they are delivered."""
    with disk_queue(tmp_path, 1 << 20) as queue:
        for number in range(3):
            queue.put(b"%d" % number, id=number + 1)
    [path] = files(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"0000000000000002", b"not-of-this-nsq!"))
    registry = open_registry(mem_queue_size=0)
    channel = channel_of(registry)
    shown = [(identity(row), row["piece"]) for row in look_at_all(channel)]
    consumer = Peer(registry)
    consumer.subscribe(b"t", b"c", 100)
    assert [(d[10:26], d[26:]) for kind, d in consumer.receive() if kind == 2] == shown
    consumer.close()


def test_no_descriptor_and_no_message_is_left(open_registry, tmp_path):
    registry = open_registry(mem_queue_size=5)
    channel = channel_of(registry)
    empty = DiskQueue(str(tmp_path), "empty", registry.durability.store.syncer, 1000, 1)
    for number in range(50):
        registry.topics.ensure("t").put(b"%d" % number)
    complete(channel)
    descriptors, deliveries = len(os.listdir("/proc/self/fd")), live_deliveries()
    for _ in range(20):
        complete(channel, limit=3)
        complete(channel, needle=b"4")
        Snapshot(channel, "ready")  # never completed
        DiskScan(empty.reader)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert live_deliveries() == deliveries
