"""Messages picked by an operator: what is asked for happens to each of those, once, and to no other."""

import itertools
import random
import shutil

import pytest
from nsqfast._ext.broker.picker import IDS_MAX, Picker
from nsqfast._ext.broker.snapshot import STATES
from nsqfast._ext.dev.probes import fix_parts, let_pass, live_deliveries
from nsqfast._ext.dev.structures import put_all

from nsqfast.wire.refusals import NotTakenError
from support.core import NEVER, SECOND_NS, Peer, counted_bytes, make_registry, sync
from support.peek import bodies, complete, look_at_all, pick, rows
from support.seeds import seeds

pytestmark = pytest.mark.usefixtures("quick_disk")

SEEDS = seeds("picker", 3)
# One that is durable waits for the disk thousands of times.
SOAKED = [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.soak) for seed in SEEDS[1:])]
HOUR_MS = 3_600_000
MEMORY_SIZES = [0, 3, 10000]
TAGS = (b"a", b"b", b"c")


@pytest.fixture
def open_registry(tmp_path):
    """Registries on one folder, closed at the end."""
    registries = []

    def make(folder=tmp_path / "data", **changed):
        folder.mkdir(exist_ok=True)
        registries.append(make_registry(folder, **changed))
        return registries[-1]

    yield make
    fix_parts(NEVER)
    for registry in registries:
        registry.topics.close()


def identity(row):
    return row["id"].encode()


def whole(channel):
    """state: its bodies, in the order that a look shows."""
    return {state: bodies(look_at_all(channel, state)) for state in STATES}


def everything(channel):
    """Its bodies, whatever their state."""
    return sorted(itertools.chain.from_iterable(whole(channel).values()))


class Broker:
    """A channel `c` of topic `t` whose consumers come and go, and topic `u` with channel `d`, where copies go."""

    def __init__(self, open_registry, folder, dice, **changed):
        self.open_registry, self.folder, self.dice, self.changed = (
            open_registry,
            folder,
            dice,
            changed,
        )
        self.published = 0
        self.peers = []
        self.open()

    def open(self):
        self.registry = self.open_registry(self.folder, **self.changed)
        self.topic, self.other = self.registry.topics.ensure("t"), self.registry.topics.ensure("u")
        self.channel, self.copies = self.topic.channel("c"), self.other.channel("d")

    def act(self):
        dice = self.dice
        number = dice.random()
        if number < 0.6:
            self.published += 1
            size = dice.choice([0, 9, 900])
            body = dice.choice(TAGS) + b"%d " % self.published + bytes(size)
            self.topic.put(body, dice.choice([0, 0, 0, HOUR_MS]))
        elif number < 0.7:
            self.peers.append(Peer(self.registry))
            self.peers[-1].subscribe(b"t", b"c", dice.randrange(4))
        elif number < 0.8 and self.peers:
            self.peers.pop(dice.randrange(len(self.peers))).close()
        elif number < 0.9:
            self.registry.timers.run(let_pass(2 * SECOND_NS))
        elif number < 0.91:
            for peer in self.peers:
                peer.close()
            self.peers.clear()
            self.registry.topics.close()
            self.open()
        self.registry.turn.end()

    def check_kill(self, tmp_path):
        """What the files say now is what a broker finds that was killed."""
        sync(self.registry)
        shutil.copytree(self.folder, tmp_path / "killed")
        registry = self.open_registry(tmp_path / "killed", **self.changed)
        for (
            queue
        ) in registry.topics.logged_names():  # what it had is in the log until it is made again
            topic, _, channel = queue.partition(":")
            registry.topics.ensure(topic).channel(channel or "c")
        found = registry.topics.ensure("t").channel("c")
        assert everything(found) == everything(self.channel)
        registry.topics.close()
        registry.topics.close()
        shutil.rmtree(tmp_path / "killed")


def is_ordered(some, all_of_them):
    left = iter(all_of_them)
    return all(one in left for one in some)


@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
@pytest.mark.parametrize("memory", MEMORY_SIZES, ids=lambda n: f"mem={n}")
@pytest.mark.parametrize("seed", SOAKED, ids=lambda seed: f"seed={seed}")
def test_those_and_no_others(open_registry, tmp_path, seed, memory, durable):
    dice, before_count = random.Random(seed), live_deliveries()
    changed = {"mem_queue_size": memory, "max_bytes_per_file": 3000}
    changed |= {"durable": "always" if durable else "off", "msg_timeout_ns": 900 * SECOND_NS}
    changed |= {"commit_log_size": 16 << 20, "max_body_size": 2 << 20}  # it is copied often
    broker = Broker(open_registry, tmp_path / "data", dice, **changed)
    for _ in range(150):
        fix_parts(NEVER)
        for _ in range(dice.randrange(12)):
            broker.act()
        before, copies = whole(broker.channel), whole(broker.copies)["ready"]
        state, tag = dice.choice(STATES), dice.choice(TAGS)
        action = dice.choice(["requeue", "drop", "copy", "move"])
        shown = look_at_all(broker.channel, state)
        if dice.random() < 0.5:
            wanted = {"needle": tag}
            chosen = [row["piece"] for row in shown if tag in row["piece"]]
        else:
            some = [row for row in shown if dice.random() < 0.3][:IDS_MAX]
            wanted = {"ids": tuple(identity(row) for row in some)}
            chosen = [row["piece"] for row in some] if some else [row["piece"] for row in shown]
        if shown and dice.random() < 0.3:
            wanted["since_ns"] = since_ns = dice.choice(shown)["timestamp_ns"]
            recent = {row["piece"] for row in shown if row["timestamp_ns"] >= since_ns}
            chosen = [body for body in chosen if body in recent]
        for peer in broker.peers:
            peer.send(b"RDY 0\n")
        fix_parts(dice.choice([1, 3, 50, NEVER]))
        target = broker.other if action in ("copy", "move") else None
        picker = pick(broker.channel, state, action, target, **wanted)
        broker.registry.turn.end()
        after, copies_after = whole(broker.channel), whole(broker.copies)["ready"]
        assert picker.changed == len(chosen)
        assert picker.remark is None
        left = [body for body in before[state] if body not in chosen]
        if action == "copy":
            assert after == before
        else:
            expected = before | {state: left}
            if action == "requeue":
                expected["ready"] = expected["ready"] + chosen
                assert set(after["ready"][len(after["ready"]) - len(chosen) :]) == set(chosen)
            assert {name: sorted(found) for name, found in after.items()} == {
                name: sorted(found) for name, found in expected.items()
            }
            assert is_ordered([body for body in before["ready"] if body in left], after["ready"])
        assert copies_after[: len(copies)] == copies
        new = copies_after[len(copies) :]
        assert sorted(new) == (sorted(chosen) if target else [])
        if state == "ready":
            assert not target or new == chosen
        if durable and dice.random() < 0.2:
            broker.check_kill(tmp_path)
    for peer in broker.peers:
        peer.close()
    broker.peers.clear()
    alive = everything(broker.channel)
    broker.registry.topics.close()
    broker.open()
    assert everything(broker.channel) == alive
    broker.registry.topics.close()
    del broker, picker
    assert live_deliveries() <= before_count


@pytest.mark.parametrize("action", ["requeue", "drop", "copy", "move"])
@pytest.mark.parametrize("memory", MEMORY_SIZES, ids=lambda n: f"mem={n}")
def test_consumers_and_publishers_go_on_meanwhile(open_registry, memory, action):
    """Each message is finished by a consumer, or dropped, or is in the other topic: none twice, none never."""
    dice = random.Random(SEEDS[0])
    registry = open_registry(mem_queue_size=memory, max_bytes_per_file=3000)
    topic, channel, other = (
        registry.topics.ensure("t"),
        registry.topics.ensure("t").channel("c"),
        registry.topics.ensure("u"),
    )
    copies = other.channel("d")
    published = [b"%s%d" % (dice.choice(TAGS), number) for number in range(2000)]
    for body in published[:1000]:
        topic.put(body)
    consumer, finished = Peer(registry), []
    consumer.subscribe(b"t", b"c", 5)

    def consume():
        registry.turn.end()
        for kind, data in consumer.receive():
            if kind == 2:
                finished.append(data[26:])
                consumer.send(b"FIN %s\n" % data[10:26])

    fix_parts(7)
    target = other if action in ("copy", "move") else None
    picker = Picker(channel, "ready", action, target, needle=b"a")
    left = iter(published[1000:])
    while not picker.is_over:
        if picker.needs_thread:
            picker.search()
            consume()
        picker.go_on()
        consume()
        if (body := next(left, None)) is not None:
            topic.put(body)
    fix_parts(NEVER)
    for body in left:
        topic.put(body)
    while channel.depth or channel.in_flight_count:
        registry.timers.run(let_pass(1000))
        consume()
    consumer.close()
    copied = bodies(look_at_all(copies))
    assert len(set(finished)) == len(finished)
    missing = set(published) - set(finished)
    assert all(body.startswith(b"a") for body in missing)
    assert len(missing) == (picker.changed if action in ("drop", "move") else 0)
    assert picker.changed > 0
    if target is not None:
        assert len(set(copied)) == len(copied) == picker.changed
        assert missing == (set(copied) if action == "move" else set())


@pytest.mark.parametrize("memory", [0, 100_000])
def test_a_part_at_a_time_and_on_at_a_place(open_registry, memory):
    registry = open_registry(mem_queue_size=memory)
    topic, channel = registry.topics.ensure("t"), registry.topics.ensure("t").channel("c")
    put_all(topic, b"\n".join(b"%d." % number for number in range(30_000)), False)
    fix_parts(500)
    place, changed, examined, rounds = None, 0, 0, 0
    while True:
        picker = Picker(channel, "ready", "drop", needle=b"7.", place=place)
        for _ in range(3):
            if picker.needs_thread:
                picker.search()
            picker.go_on()
        changed, examined, rounds = changed + picker.changed, examined + picker.examined, rounds + 1
        place = picker.place_after
        topic.put(b"7. that came later")
        if picker.is_over:
            break
    assert place is None
    assert (changed, examined) == (3000, 30_000)
    assert rounds > 2
    assert channel.depth == 27_000 + rounds


@pytest.mark.parametrize("memory", [0, 100_000])
def test_ids_are_looked_for_among_ten_thousand(open_registry, memory):
    registry = open_registry(mem_queue_size=memory)
    topic, channel = registry.topics.ensure("t"), registry.topics.ensure("t").channel("c")
    put_all(topic, b"\n".join(b"%d" % number for number in range(25_000)), False)
    picker = pick(channel, "ready", "drop", ids=(b"f" * 16,))
    assert (picker.changed, picker.examined) == (0, 10_000)


def test_thousands_that_were_dropped_are_skipped_a_part_at_a_time(open_registry):
    """They stand behind one that waits, and before another: a consumer gets both, in time."""
    registry = open_registry(mem_queue_size=0)
    topic, channel = registry.topics.ensure("t"), registry.topics.ensure("t").channel("c")
    put_all(topic, b"\n".join([b"first", *[b"-"] * 30_000, b"last"]), False)
    assert pick(channel, "ready", "drop", needle=b"-").changed == 30_000
    assert channel.depth == 2
    consumer = Peer(registry)
    consumer.subscribe(b"t", b"c", 2)
    for _ in range(30):
        registry.timers.run(let_pass(1000))
    registry.turn.end()
    assert [data[26:] for kind, data in consumer.receive() if kind == 2] == [b"first", b"last"]
    consumer.close()


@pytest.mark.parametrize("state", STATES)
def test_copies_that_nobody_takes(open_registry, state):
    """The other topic is being deleted: what was picked stays where it was, or is queued."""
    registry = open_registry()
    topic, channel = registry.topics.ensure("t"), registry.topics.ensure("t").channel("c")
    other, consumer = registry.topics.ensure("u"), Peer(registry)
    other.channel("d")
    if state == "in_flight":
        consumer.subscribe(b"t", b"c", 10)
    for number in range(5):
        topic.put(b"%d" % number, HOUR_MS if state == "deferred" else 0)
    registry.turn.end()
    registry.topics.delete("u")
    with pytest.raises(NotTakenError):
        pick(channel, state, "move", other, needle=b"")
    registry.turn.end()
    assert everything(channel) == [b"0", b"1", b"2", b"3", b"4"]
    consumer.close()


def test_large_bodies_move_whole(tmp_path):
    registry = make_registry(
        tmp_path, mem_queue_size=0, max_msg_size=4 << 20, max_body_size=8 << 20
    )
    topic, channel = registry.topics.ensure("t"), registry.topics.ensure("t").channel("c")
    other, dice, before = registry.topics.ensure("u"), random.Random(SEEDS[0]), counted_bytes()
    copies = other.channel("d")
    published = [dice.randbytes(dice.choice([10, 131_072, 1 << 20, 3 << 20])) for _ in range(20)]
    for body in published:
        topic.put(body)
    assert pick(channel, "ready", "move", other).changed == 20
    consumer, got = Peer(registry), []
    consumer.subscribe(b"u", b"d", 20)
    while len(got) < 20:
        registry.timers.run(let_pass(1000))
        registry.turn.end()
        got += [data[26:] for kind, data in consumer.receive() if kind == 2]
    assert got == published
    assert copies.in_flight_count == 20
    consumer.close()
    registry.topics.close()
    del consumer, registry, topic, channel, other, copies
    assert counted_bytes() < before + (1 << 20)


@pytest.mark.parametrize("memory", [0, 10000])
def test_deferred_ones_after_a_restart(open_registry, memory):
    registry = open_registry(mem_queue_size=memory)
    topic, channel = registry.topics.ensure("t"), registry.topics.ensure("t").channel("c")
    for body in (b"a", b"b", b"c", b"d"):
        topic.put(body, HOUR_MS)
    ids = {row["piece"]: identity(row) for row in look_at_all(channel, "deferred")}
    assert pick(channel, "deferred", "requeue", ids=(ids[b"b"],)).changed == 1
    assert pick(channel, "deferred", "drop", ids=(ids[b"c"],)).changed == 1
    assert bodies(look_at_all(channel)) == [b"b"]
    for gone in (ids[b"b"], ids[b"c"], b"0" * 16):
        for action in ("requeue", "drop"):
            assert pick(channel, "deferred", action, ids=(gone,)).changed == 0
    registry.topics.close()
    again = open_registry(mem_queue_size=memory).topics.ensure("t").channel("c")
    assert bodies(look_at_all(again)) == [b"b"]
    assert bodies(look_at_all(again, "deferred")) == [b"a", b"d"]


def test_what_was_dropped_is_freed_a_part_at_a_time(open_registry):
    registry = open_registry(mem_queue_size=100_000)
    topic, channel = registry.topics.ensure("t"), registry.topics.ensure("t").channel("c")
    topic.put(b"first", HOUR_MS)
    before = counted_bytes()
    for _ in range(50_000):
        topic.put(b"x", HOUR_MS)
    picker, parts = Picker(channel, "deferred", "drop"), 0
    while not picker.is_over:
        parts += picker.changed == 50_001
        picker.go_on()
    assert parts > 5
    assert counted_bytes() < before + (1 << 20)


@pytest.mark.parametrize("bad", [b"", b"0" * 15, b"0" * 17, b"0" * 15 + b"g", b"ABCDEF0123456789"])
def test_what_is_no_id(open_registry, bad):
    with pytest.raises(ValueError, match="16 lower-case hex digits"):
        Picker(open_registry().topics.ensure("t").channel("c"), "deferred", "drop", ids=(bad,))


def test_one_that_is_looked_for_while_the_heap_goes_on(open_registry):
    """Whatever comes due, is requeued or emptied between two calls: the right one is found, or none."""
    registry = open_registry(mem_queue_size=10**6)
    topic, channel = registry.topics.ensure("t"), registry.topics.ensure("t").channel("c")
    dice = random.Random(SEEDS[1])
    for number in range(20_000):
        topic.put(b"%d" % number, dice.randrange(60_000, HOUR_MS))
    shown = [rows(complete(channel, "deferred", limit=100, offset=n)) for n in range(0, 5000, 100)]
    ids = {row["piece"]: identity(row) for page in shown for row in page}
    fix_parts(3000)
    for body in dice.sample(sorted(ids), 100):
        picker, count = (
            Picker(channel, "deferred", "drop", ids=(ids[body],)),
            channel.deferred_count,
        )
        while True:
            picker.go_on()
            if picker.is_over:
                break
            if dice.random() < 0.2:
                registry.timers.run(let_pass(SECOND_NS // 10))
                count = channel.deferred_count + picker.changed
            topic.put(b"new", dice.randrange(60_000, HOUR_MS))
            count += 1
        assert channel.deferred_count == count - picker.changed
        assert pick(channel, "deferred", "drop", ids=(ids[body],)).changed == 0
    picker = Picker(channel, "deferred", "drop", ids=(b"f" * 16,))
    picker.go_on()
    channel.empty()
    while not picker.is_over:
        picker.go_on()
    assert picker.changed == 0
