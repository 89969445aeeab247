"""Whatever a channel has to do at once, it does no more of it in a turn than fits into a part."""

import random

import pytest
from nsqfast._ext.dev.probes import fix_parts, let_pass, live_deliveries

from support.core import NEVER, SECOND_NS, Peer, counted_deliveries, make_registry
from support.seeds import seeds

MS = 1_000_000
PART = 10
CALL = 64  # what a client that goes on counts for
COUNT = 300


def publish(peer, bodies):
    for body in bodies:
        peer.send(b"PUB t\n%s%s" % (len(body).to_bytes(4, "big"), body))


def bodies(count, start=0):
    return [b"%d" % number for number in range(start, start + count)]


def messages(peer):
    """(id, body) of those that came since the last call."""
    return [(data[10:26], data[26:]) for kind, data in peer.receive() if kind == 2]


def come(peer):
    return [body for _, body in messages(peer)]


def turns(registry, figure, end):
    """Run timers until `figure()` is `end`; by how much it changed in each turn in which it did."""
    steps, before, idle = [], figure(), 0
    while before != end:
        registry.timers.run(let_pass(1000))
        now = figure()
        idle = 0 if now != before else idle + 1
        assert idle < 100, f"it stays at {now}"
        if now != before:
            steps.append(abs(now - before))
        before = now
    return steps


def are_parts(steps, count):
    return max(steps) <= PART and sum(steps) == count


class Scene:
    """A channel with consumers that have COUNT messages in flight each."""

    def __init__(self, tmp_path, consumers=1, **options):
        self.tmp_path, self.options = tmp_path, options
        self.registry = make_registry(tmp_path, msg_timeout_ns=SECOND_NS, **options)
        self.producer = Peer(self.registry)
        self.channel = self.registry.topics.ensure("t").channel("c")
        self.consumers = []
        for number in range(consumers):
            consumer = Peer(self.registry)
            consumer.subscribe(b"t", b"c", COUNT)
            self.consumers.append(consumer)
            publish(self.producer, bodies(COUNT, number * COUNT))
            assert come(consumer) == bodies(COUNT, number * COUNT)
        fix_parts(PART)

    def leave(self):
        """All consumers at once."""
        for consumer in self.consumers:
            consumer.connection.connection_lost(None)

    def figures(self):
        channel = self.channel
        return channel.depth, channel.in_flight_count, channel.deferred_count

    def queued(self):
        return self.channel.depth

    def drain(self, channel=None):
        """What a new consumer gets of the rest."""
        consumer, got = Peer(self.registry), []
        fix_parts(1 << 40)
        consumer.subscribe(b"t", b"c", 2500)
        while some := messages(consumer):
            got += [body for _, body in some]
            consumer.send(b"".join(b"FIN %s\n" % number for number, _ in some))
        return got

    def open_again(self):
        """After a clean stop."""
        self.registry.topics.close()
        self.registry = make_registry(self.tmp_path, msg_timeout_ns=SECOND_NS, **self.options)
        self.channel = self.registry.topics.ensure("t").channel("c")


@pytest.fixture(params=[10000, 0], ids=["memory", "disk"])
def memory(request):
    return request.param


def test_timeouts(tmp_path, memory):
    scene = Scene(tmp_path, consumers=3, mem_queue_size=memory)
    scene.channel.pause()
    let_pass(SECOND_NS)
    assert are_parts(turns(scene.registry, scene.queued, 3 * COUNT), 3 * COUNT)
    assert scene.figures() == (3 * COUNT, 0, 0)
    assert scene.channel.timeout_count == 3 * COUNT
    scene.leave()
    scene.channel.unpause()
    assert scene.drain() == bodies(3 * COUNT)
    scene.registry.topics.close()


def test_what_is_deferred_until_one_moment(tmp_path, memory):
    scene = Scene(tmp_path, consumers=0, mem_queue_size=memory)
    for body in bodies(COUNT):
        scene.producer.send(b"DPUB t 1000\n%s%s" % (len(body).to_bytes(4, "big"), body))
    assert scene.figures() == (0, 0, COUNT)
    let_pass(SECOND_NS + MS)
    assert are_parts(turns(scene.registry, scene.queued, COUNT), COUNT)
    assert sorted(scene.drain()) == sorted(bodies(COUNT))
    scene.registry.topics.close()


def test_consumers_that_leave_together(tmp_path, memory):
    scene = Scene(tmp_path, consumers=3, mem_queue_size=memory)
    scene.leave()
    assert scene.figures() == (0, 3 * COUNT, 0)
    # Nobody waits for these timeouts any more.
    let_pass(2 * SECOND_NS)
    assert are_parts(turns(scene.registry, scene.queued, 3 * COUNT), 3 * COUNT)
    assert scene.figures() == (3 * COUNT, 0, 0)
    assert (scene.channel.timeout_count, scene.channel.requeue_count) == (0, 0)
    assert scene.drain() == bodies(3 * COUNT)
    scene.registry.topics.close()


def test_a_consumer_that_leaves_an_ephemeral_channel(tmp_path):
    before = counted_deliveries()
    registry = make_registry(tmp_path)
    producer, consumer = Peer(registry), Peer(registry)
    consumer.subscribe(b"t", b"c#ephemeral", COUNT)
    publish(producer, bodies(COUNT))
    assert come(consumer) == bodies(COUNT)
    fix_parts(PART)
    consumer.connection.connection_lost(None)
    assert registry.topics.ensure("t").find_channel("c#ephemeral") is None
    assert are_parts(turns(registry, live_deliveries, before), COUNT)
    registry.topics.close()


def test_others_get_what_is_given_back(tmp_path):
    scene = Scene(tmp_path)
    heir = Peer(scene.registry)
    heir.subscribe(b"t", b"c", COUNT)
    scene.leave()
    got = []
    while len(got) < COUNT:
        scene.registry.timers.run(let_pass(1000))
        some = come(heir)
        assert len(some) <= PART
        got += some
    assert got == bodies(COUNT)
    scene.registry.topics.close()


def test_a_pause_that_ends(tmp_path, memory):
    scene = Scene(tmp_path, consumers=0, mem_queue_size=memory)
    fix_parts(NEVER)
    consumers = [Peer(scene.registry) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(b"t", b"c", COUNT)
    scene.channel.pause()
    publish(scene.producer, bodies(2 * COUNT))
    fix_parts(PART)
    scene.channel.unpause()
    assert scene.channel.in_flight_count == PART
    steps = turns(scene.registry, lambda: scene.channel.in_flight_count, 2 * COUNT)
    assert are_parts(steps, 2 * COUNT - PART)
    assert sorted(body for consumer in consumers for body in come(consumer)) == sorted(
        bodies(2 * COUNT)
    )
    scene.registry.topics.close()


@pytest.mark.parametrize("command", ["empty", "delete"])
@pytest.mark.parametrize("where", ["in flight", "queued", "deferred", "returning"])
def test_what_is_dropped_is_freed_little_by_little(tmp_path, command, where):
    before = counted_deliveries()
    scene = Scene(tmp_path)
    if where == "deferred":
        # The consumer's own books are not what is tried here.
        fix_parts(1 << 40)
        scene.registry.topics.ensure("t").empty()
        for body in bodies(COUNT):
            scene.producer.send(b"DPUB t 1000\n%s%s" % (len(body).to_bytes(4, "big"), body))
        fix_parts(PART)
    elif where != "in flight":
        scene.leave()
        if where == "queued":
            turns(scene.registry, scene.queued, COUNT)
        else:
            scene.registry.timers.run(let_pass(0))
            assert scene.figures() == (PART, COUNT - PART, 0)
    count = live_deliveries() - before
    assert count >= COUNT
    if command == "empty":
        scene.channel.empty()
    else:
        scene.registry.topics.ensure("t").delete_channel("c")
    assert scene.figures() == (0, 0, 0)
    assert live_deliveries() == before + count
    assert are_parts(turns(scene.registry, live_deliveries, before), count)
    publish(scene.producer, [b"next"])
    assert scene.drain() == [b"next"] or where in {"in flight", "deferred"}
    scene.registry.topics.close()


def test_a_stop_while_memory_is_freed(tmp_path):
    before = counted_deliveries()
    scene = Scene(tmp_path, consumers=3)
    scene.channel.empty()
    scene.registry.timers.run(let_pass(0))
    assert live_deliveries() == before + 3 * COUNT - PART
    publish(scene.producer, [b"next"])
    scene.leave()
    scene.open_again()
    assert live_deliveries() == before
    assert scene.drain() == [b"next"]
    scene.registry.topics.close()


def test_a_stop_while_a_part_is_back_in_the_queue(tmp_path, memory):
    scene = Scene(tmp_path, consumers=3, mem_queue_size=memory)
    scene.leave()
    scene.registry.timers.run(let_pass(0))
    assert scene.figures() == (PART, 3 * COUNT - PART, 0)
    scene.open_again()
    assert scene.drain() == bodies(3 * COUNT)
    scene.registry.topics.close()


def test_a_stop_keeps_the_order_of_the_timeouts(tmp_path):
    registry = make_registry(tmp_path)
    producer, consumers = Peer(registry), [Peer(registry) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(b"t", b"c", COUNT)
    for body in bodies(COUNT):
        let_pass(1000)
        publish(producer, [body])
    registry.topics.close()
    registry = make_registry(tmp_path)
    consumer = Peer(registry)
    consumer.subscribe(b"t", b"c", COUNT)
    assert come(consumer) == bodies(COUNT)
    registry.topics.close()


def test_consumers_of_a_deleted_channel(tmp_path):
    registry = make_registry(tmp_path)
    topic = registry.topics.ensure("t")
    consumers = [Peer(registry) for _ in range(20)]
    for consumer in consumers:
        consumer.subscribe(b"t", b"c", 1)
    fix_parts(PART)
    topic.delete_channel("c")
    let_pass(MS)  # they take more later
    steps = turns(registry, lambda: sum(c.transport.is_closing for c in consumers), 20)
    assert steps == [1] * 20  # each counts for more than a part
    registry.topics.close()


def test_consumers_that_take_more_later(tmp_path):
    rdy = 100
    registry = make_registry(tmp_path)
    producer, consumers = Peer(registry), [Peer(registry) for _ in range(20)]
    registry.topics.ensure("t").channel("c")
    publish(producer, bodies(21 * rdy))
    taken = []
    for consumer in consumers:
        consumer.subscribe(b"t", b"c", rdy)
        taken.append(messages(consumer))
        assert len(taken[-1]) == rdy
    channel = registry.topics.ensure("t").find_channel("c")
    fix_parts(PART)
    for consumer, mine in zip(consumers, taken, strict=True):
        consumer.send(b"FIN %s\n" % mine[0][0])
    assert channel.in_flight_count == 20 * (rdy - 1)
    let_pass(MS)
    steps = turns(registry, lambda: channel.in_flight_count, 20 * rdy)
    assert steps == [1] * 20
    registry.topics.close()


def test_consumers_whose_output_has_left(tmp_path):
    """One body fills what a consumer's output may hold, so each write makes room for one message more."""
    channels, count = 6, 8
    registry = make_registry(tmp_path)
    producer, topic = Peer(registry), registry.topics.ensure("t")
    names = [f"c{number}" for number in range(channels)]
    consumers = [Peer(registry) for _ in names]
    for name in names:
        topic.channel(name)
    publish(producer, [bytes(1 << 20)] * count)
    for name, consumer in zip(names, consumers, strict=True):
        consumer.subscribe(b"t", name.encode(), 2500)
    taken = [topic.find_channel(name) for name in names]
    before = [channel.in_flight_count for channel in taken]
    assert before == [1] * channels
    fix_parts(CALL)
    idle = 0
    while sum(before) < channels * count:
        registry.turn.end()
        now = [channel.in_flight_count for channel in taken]
        steps = [after - then for then, after in zip(before, now, strict=True)]
        assert sum(steps) <= 1  # a turn has time for one of them
        assert max(now) - min(now) <= 2  # and nobody is left behind
        idle = 0 if any(steps) else idle + 1
        assert idle < 10, f"it stays at {now}"
        before = now
    for consumer in consumers:
        fix_parts(NEVER)
        assert come(consumer) == [bytes(1 << 20)] * count
    registry.topics.close()


class Books:
    """Everything at random, in parts of a few units: what came and was not finished is there, once."""

    def __init__(self, registry, dice):
        self.registry, self.dice = registry, dice
        self.part = dice.choice([1, 3, 7])
        self.producer = Peer(registry)
        self.channel = registry.topics.ensure("t").channel("c")
        self.peers = {}
        self.left = set()
        self.count = 0

    def publish(self):
        some = bodies(self.dice.choice([1, 20]), self.count)
        self.count += len(some)
        self.left |= set(some)
        if self.dice.random() < 0.3:
            for body in some:
                line = b"DPUB t %d\n" % self.dice.choice([1, 100])
                self.producer.send(line + len(body).to_bytes(4, "big") + body)
        else:
            publish(self.producer, some)

    def join(self):
        peer = Peer(self.registry)
        peer.subscribe(b"t", b"c", self.dice.randrange(30))
        self.peers[peer] = []

    def ready(self):
        for peer in self.some_peers():
            peer.send(b"RDY %d\n" % self.dice.randrange(30))

    def leave(self):
        for peer in self.some_peers():
            peer.connection.connection_lost(None)
            del self.peers[peer]

    def some_peers(self):
        return self.dice.sample(list(self.peers), self.dice.randrange(len(self.peers) + 1))

    def settle(self):
        # Commands that were held go first, so that each of these is run at once.
        fix_parts(NEVER)
        self.registry.turn.end()
        fix_parts(self.part)
        for peer in self.some_peers():
            for number, body in self.peers[peer]:
                draw = self.dice.random()
                if draw < 0.4:
                    before = self.total()
                    peer.send(b"FIN %s\n" % number)
                    if self.total() < before:  # else it came too late
                        self.left.discard(body)
                elif draw < 0.6:
                    peer.send(b"REQ %s %d\n" % (number, self.dice.choice([0, 1, 100])))
                elif draw < 0.8:
                    peer.send(b"TOUCH %s\n" % number)
            self.peers[peer] = []

    def read(self):
        for peer in self.peers:
            self.peers[peer] += messages(peer)

    def pause(self):
        if self.dice.random() < 0.5:
            self.channel.pause()
        else:
            self.channel.unpause()

    def empty(self):
        if self.dice.random() < 0.2:
            self.channel.empty()
            self.left.clear()

    def let_time_pass(self):
        self.registry.timers.run(let_pass(self.dice.choice([0, MS, 50 * MS])))

    def total(self):
        return self.channel.depth + self.channel.in_flight_count + self.channel.deferred_count

    def check(self):
        assert self.total() == len(self.left)
        mine = sum(peer.session.in_flight for peer in self.peers)
        assert mine <= self.channel.in_flight_count


@pytest.mark.parametrize("size", [0, 20, 10000], ids=lambda n: f"mem={n}")
@pytest.mark.parametrize("seed", seeds("books", 3), ids=lambda seed: f"seed={seed}")
def test_the_books_hold(tmp_path, seed, size):
    before = counted_deliveries()
    dice = random.Random(seed)
    registry = make_registry(tmp_path, mem_queue_size=size, msg_timeout_ns=SECOND_NS // 10)
    books = Books(registry, dice)
    often = [books.publish, books.settle, books.read, books.let_time_pass, books.ready]
    steps = often * 4 + [books.join, books.join, books.leave, books.pause, books.empty]
    fix_parts(books.part)
    for _ in range(1000):
        dice.choice(steps)()
        books.check()
    registry.topics.close()
    fix_parts(1 << 40)
    registry = make_registry(tmp_path, mem_queue_size=size)
    consumer = Peer(registry)
    consumer.subscribe(b"t", b"c", 2500)
    registry.timers.run(let_pass(SECOND_NS))
    got = []
    while some := messages(consumer):
        got += [body for _, body in some]
        consumer.send(b"".join(b"FIN %s\n" % number for number, _ in some))
    assert sorted(got) == sorted(books.left)
    registry.topics.close()
    del registry, books, consumer, steps, often
    assert live_deliveries() <= before
