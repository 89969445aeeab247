"""Sessions, topics and channels of the compiled core against a naive model, without sockets."""

import random
import resource

import pytest
from nsqfast._ext.dev.probes import let_pass, live_deliveries, shift_wall, used_bytes
from nsqfast._ext.dev.structures import put_all

from models.channel import ChannelModel
from support.core import SECOND_NS, Peer, counted_deliveries, make_registry
from support.peek import look_at_all
from support.seeds import seeds

TIB = 1 << 40
SEEDS = seeds("channel", 3)


def publish(peer, topic, *bodies):
    for body in bodies:
        peer.send(b"PUB %s\n%s%s" % (topic, len(body).to_bytes(4, "big"), body))


class Scene:
    """One channel, one producer, some consumers; the model follows each step."""

    def __init__(self, registry, dice):
        self.registry, self.dice = registry, dice
        self.model = ChannelModel()
        self.producer = Peer(registry)
        registry.topics.ensure("t").channel("c")
        self.consumers = {}
        self.ids = {}
        self.published = 0
        self.is_reordered = False  # messages put back at once: their order among themselves is open

    def publish(self):
        for _ in range(self.dice.choice([1, 1, 20])):
            body = b"%d" % self.published
            self.published += 1
            self.model.publish(body)
            publish(self.producer, b"t", body)

    def join(self):
        peer = Peer(self.registry)
        rdy = self.dice.randrange(4)
        peer.subscribe(b"t", b"c", rdy)
        number = max(self.consumers, default=0) + 1
        self.consumers[number] = peer
        self.model.rdy[number] = rdy

    def leave(self):
        if self.consumers:
            number = self.dice.choice(list(self.consumers))
            self.consumers.pop(number).close()
            del self.model.rdy[number]
            # What it had is queued again; in which order is not promised.
            taken = [body for body, owner in self.model.in_flight.items() if owner == number]
            self.model.in_flight = {b: o for b, o in self.model.in_flight.items() if o != number}
            self.model.queue += taken

    def ready(self):
        if self.consumers:
            number = self.dice.choice(list(self.consumers))
            self.model.rdy[number] = self.dice.randrange(6)
            self.consumers[number].send(b"RDY %d\n" % self.model.rdy[number])

    def settle(self):
        if self.model.in_flight:
            body = self.dice.choice(list(self.model.in_flight))
            peer = self.consumers[self.model.in_flight[body]]
            if self.dice.random() < 0.7:
                self.model.finish(body)
                peer.send(b"FIN %s\n" % self.ids[body])
            elif self.dice.random() < 0.5:
                self.model.requeue(body)
                peer.send(b"REQ %s 0\n" % self.ids[body])
            else:
                self.model.defer(body)
                peer.send(b"REQ %s 10000\n" % self.ids[body])

    def let_time_pass(self):
        for peer in [self.producer, *self.consumers.values()]:
            peer.send(b"NOP\n")  # or they would be taken for dead
        self.registry.timers.run(let_pass(11 * SECOND_NS))
        self.model.queue += self.model.deferred
        self.model.deferred.clear()

    def look(self):
        """Take in what arrived, in the order of delivery, and compare all figures."""
        arrived = []
        for number, peer in self.consumers.items():
            for kind, data in peer.receive():
                if kind == 2:
                    attempts, body = int.from_bytes(data[8:10], "big"), data[26:]
                    arrived.append((number, attempts, body))
                    self.ids[body] = data[10:26]
                else:
                    assert (kind, data) in ((0, b"OK"), (0, b"_heartbeat_"))
        self.match(arrived)
        self.model.settled()
        channel = self.registry.topics.find("t").find_channel("c")
        assert channel.depth == len(self.model.queue)
        assert channel.in_flight_count == len(self.model.in_flight)
        assert channel.deferred_count == len(self.model.deferred)
        assert channel.requeue_count == self.model.requeued
        assert channel.message_count == self.published
        assert channel.backend_depth <= channel.depth

    def match(self, arrived):
        """Between them the consumers got the front of the queue, in any order among themselves."""
        front = self.model.queue[: len(arrived)]
        if not self.is_reordered:
            assert sorted(body for _, _, body in arrived) == sorted(front)
        for number, attempts, body in arrived:
            self.model.queue.remove(body)
            self.model.queue.insert(0, body)
            self.model.delivered(number, body, attempts)


@pytest.mark.disk
@pytest.mark.parametrize("memory", [0, 5, 10000], ids=lambda n: f"mem={n}")
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed={seed}")
def test_channel_against_its_model(tmp_path, seed, memory):
    before = counted_deliveries()
    dice = random.Random(seed)
    # Much time passes; the model knows deferrals, but no timeouts of what is in flight.
    registry = make_registry(tmp_path, mem_queue_size=memory, msg_timeout_ns=10**6 * SECOND_NS)
    scene = Scene(registry, dice)
    steps = [scene.publish] * 4 + [scene.settle] * 8 + [scene.ready] * 2
    steps += [scene.join, scene.leave, scene.let_time_pass]
    for _ in range(1500):
        step = dice.choice(steps)
        scene.is_reordered |= step in (scene.leave, scene.let_time_pass)
        step()
        scene.look()
        if not scene.model.queue:
            scene.is_reordered = False
    for peer in [*scene.consumers.values(), scene.producer]:
        peer.close()
    registry.topics.close()
    del scene, registry, steps, step
    assert live_deliveries() <= before


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed={seed}")
def test_channel_while_memory_is_short_now_and_then(tmp_path, seed):
    """Whatever went to disk for want of memory: nobody overtakes, nothing is lost."""
    dice = random.Random(seed)
    registry = make_registry(
        tmp_path, msg_timeout_ns=10**6 * SECOND_NS, max_memory=TIB, mem_queue_size=50
    )
    scene = Scene(registry, dice)
    held = 0
    before = used_bytes()
    steps = [scene.publish] * 4 + [scene.settle] * 8 + [scene.ready, scene.join, scene.leave]
    try:
        for number in range(1500):
            if number % 40 == 0:
                # 0.8 of the ceiling: messages go to disk, but nobody waits for them.
                wanted = dice.choice([0, int(0.8 * TIB)])
                registry.memory.charge_bytes(wanted - held)
                held = wanted
            step = dice.choice(steps)
            scene.is_reordered |= step == scene.leave
            step()
            scene.look()
            if not scene.model.queue:
                scene.is_reordered = False
        assert scene.published > 500
    finally:
        registry.memory.charge_bytes(-held)
        registry.memory.set_ceiling(0)
    for peer in [*scene.consumers.values(), scene.producer]:
        peer.close()
    registry.topics.close()
    del scene, registry, steps, step
    assert abs(used_bytes() - before) < 16 << 20


@pytest.mark.disk
@pytest.mark.parametrize("durable", ["off", "always"])
def test_an_mpub_during_which_memory_is_short_for_a_moment(tmp_path, durable):
    """The first message goes to disk, and then memory has room: the second does not overtake it."""
    registry = make_registry(tmp_path, max_memory=TIB, mem_queue_size=5, durable=durable)
    topic, channel = registry.topics.ensure("t"), registry.topics.ensure("t").channel("c")
    body = bytes([1]) * 100_000
    held = TIB // 4 * 3 if durable == "off" else registry.settings.commit_log_size // 4
    topic.put(b"0")  # small ones have their memory from now on
    held -= registry.memory.used_bytes() + len(body)
    registry.memory.charge_bytes(held)
    try:
        put_all(topic, body + b"\n2", False)
        assert [row["piece"][:9] for row in look_at_all(channel)] == [b"0", body[:9], b"2"]
    finally:
        registry.memory.charge_bytes(-held)
        registry.memory.set_ceiling(0)
    registry.topics.close()


@pytest.mark.disk
def test_one_message_at_a_time_gets_through_when_memory_is_gone(tmp_path):
    registry = make_registry(tmp_path, max_memory=TIB, mem_queue_size=5)
    producer, consumer = Peer(registry), Peer(registry)
    registry.topics.ensure("t").channel("c")
    bodies = [b"%d" % number for number in range(10)]
    publish(producer, b"t", *bodies)
    registry.memory.charge_bytes(TIB)
    try:
        assert registry.memory.is_full()
        consumer.subscribe(b"t", b"c", 100)
        got = [data for kind, data in consumer.receive() if kind == 2]
        # What is in memory is there anyway; of what is on disk, nothing while others are in flight.
        assert [data[26:] for data in got] == bodies[:5]
        for body in bodies[5:]:
            for data in got:
                consumer.send(b"FIN %s\n" % data[10:26])
            got = [data for kind, data in consumer.receive() if kind == 2]
            assert [data[26:] for data in got] == [body]
    finally:
        registry.memory.charge_bytes(-TIB)
        registry.memory.set_ceiling(0)
    registry.topics.close()


@pytest.mark.parametrize("memory", [0, 3, 10000], ids=lambda n: f"mem={n}")
def test_first_in_first_out_over_memory_and_disk(tmp_path, memory):
    registry = make_registry(tmp_path, mem_queue_size=memory)
    producer, consumer = Peer(registry), Peer(registry)
    registry.topics.ensure("t").channel("c")
    bodies = [b"%d" % n for n in range(500)]
    publish(producer, b"t", *bodies)
    consumer.subscribe(b"t", b"c", 500)
    assert [data[26:] for kind, data in consumer.receive() if kind == 2] == bodies
    registry.topics.close()


def test_a_topic_keeps_its_backlog_for_the_first_channel(tmp_path):
    registry = make_registry(tmp_path, mem_queue_size=2)
    producer, first, second = (Peer(registry) for _ in range(3))
    publish(producer, b"t", b"a", b"b", b"c", b"d")
    assert registry.topics.ensure("t").depth == 4
    first.subscribe(b"t", b"one", 10)
    second.subscribe(b"t", b"two", 10)
    publish(producer, b"t", b"e")
    assert [data[26:] for kind, data in first.receive() if kind == 2] == [
        b"a",
        b"b",
        b"c",
        b"d",
        b"e",
    ]
    assert [data[26:] for kind, data in second.receive() if kind == 2] == [b"e"]
    assert registry.topics.ensure("t").depth == 0
    registry.topics.close()


def test_deferred_messages_wait_also_without_a_channel(tmp_path):
    registry = make_registry(tmp_path, mem_queue_size=0)
    producer, consumer = Peer(registry), Peer(registry)
    producer.send(b"DPUB t 5000\n\x00\x00\x00\x01x")
    assert registry.topics.ensure("t").depth == 1
    consumer.subscribe(b"t", b"c", 1)
    assert consumer.receive() == [(0, b"OK")]
    channel = registry.topics.ensure("t").channel("c")
    assert (channel.depth, channel.deferred_count, channel.message_count) == (0, 1, 1)
    registry.timers.run(let_pass(4_900_000_000))
    assert consumer.receive() == []
    registry.timers.run(let_pass(200_000_000))
    assert [data[26:] for _, data in consumer.receive()] == [b"x"]
    registry.topics.close()


def test_timeout_and_touch(tmp_path):
    registry = make_registry(
        tmp_path, msg_timeout_ns=2 * SECOND_NS, max_msg_timeout_ns=5 * SECOND_NS
    )
    producer, consumer = Peer(registry), Peer(registry)
    consumer.subscribe(b"t", b"c", 1)
    publish(producer, b"t", b"x")
    (_, ok), (_, message) = consumer.receive()
    assert (ok, message[8:10]) == (b"OK", b"\x00\x01")
    channel = registry.topics.ensure("t").channel("c")
    for _ in range(2):
        registry.timers.run(let_pass(1_900_000_000))
        consumer.send(b"TOUCH %s\n" % message[10:26])
    # Touched at 3.8 s for two more seconds, but never beyond 5 s after the delivery.
    registry.timers.run(let_pass(1_100_000_000))
    assert channel.timeout_count == 0
    registry.timers.run(let_pass(200_000_000))
    assert channel.timeout_count == 1
    ((_, again),) = consumer.receive()
    assert again[8:10] == b"\x00\x02"
    registry.topics.close()


def test_an_ephemeral_channel_goes_with_its_last_consumer(tmp_path):
    registry = make_registry(tmp_path)
    consumer = Peer(registry)
    consumer.subscribe(b"t#ephemeral", b"c#ephemeral", 1)
    assert registry.topics.find("t#ephemeral").find_channel("c#ephemeral")
    consumer.close()
    assert registry.topics.find("t#ephemeral") is None
    registry.topics.close()
    assert list(tmp_path.iterdir()) == []


def test_a_clock_set_back_stops_nobody(tmp_path):
    registry = make_registry(tmp_path)
    producer, consumer = Peer(registry), Peer(registry)
    consumer.subscribe(b"t", b"c", 10)
    publish(producer, b"t", b"1")
    try:
        shift_wall(-3600 * SECOND_NS)
        publish(producer, b"t", b"2", b"3")
    finally:
        shift_wall(0)
    ids = [data[10:26] for kind, data in consumer.receive() if kind == 2]
    assert len(ids) == 3
    assert ids == sorted(set(ids))
    registry.topics.close()


def test_slow_reader_is_not_fed_without_bound(tmp_path):
    registry = make_registry(tmp_path)
    producer, consumer = Peer(registry), Peer(registry)
    consumer.subscribe(b"t", b"c", 2500)
    consumer.receive()
    consumer.connection.pause_writing()
    for _ in range(50):
        publish(producer, b"t", bytes(100_000))
    registry.turn.end()
    channel = registry.topics.ensure("t").channel("c")
    assert channel.depth == 50
    consumer.connection.resume_writing()
    got = 0
    while messages := consumer.receive():
        got += len(messages)
        assert sum(len(data) for _, data in messages) < 2 << 20
    assert got == 50
    registry.topics.close()


@pytest.mark.disk
def test_a_backlog_that_a_full_disk_stops_goes_on_later(tmp_path):
    registry = make_registry(tmp_path, mem_queue_size=0)
    producer, consumer = Peer(registry), Peer(registry)
    bodies = [b"%d" % n for n in range(5)]
    publish(producer, b"t", *bodies)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        consumer.subscribe(b"t", b"c", 10)
        assert consumer.receive() == [(0, b"OK")]
        assert registry.topics.ensure("t").depth == 5
        assert registry.durability.health().startswith("NOK - ")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    registry.timers.run(let_pass(SECOND_NS + 1))
    assert [data[26:] for _, data in consumer.receive()] == bodies
    assert registry.durability.health() == "OK"
    registry.topics.close()
