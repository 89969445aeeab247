"""A checkpoint is shown a queue in parts, and the broker goes on between: nothing is lost, early or there twice."""

import contextlib
import random
import select

import pytest
from nsqfast._ext.broker.picker import Picker
from nsqfast._ext.dev.probes import fix_parts, keep_deferred, let_pass

from support.broker_life import TIMEOUT_NS, WAIT_S, run_turn, shift_wall, sized
from support.core import NEVER, SECOND_NS
from support.log_scene import HOUR_MS, HOUR_S, MODES, OK, play_killed
from support.seeds import seeds

SOON_S = 20
# Consumers give nothing back by themselves.
PASSES_MAX = 20
# What is left is shown at once.
PARTS_MAX = 200


@pytest.fixture(autouse=True)
def as_usual():
    yield
    keep_deferred(1000)


@contextlib.contextmanager
def small_parts(units):
    """Timers run with these alone; a command is never cut."""
    fix_parts(units)
    yield
    fix_parts(NEVER)


class Play:
    """Knows of each message that is not finished whether it is deferred for long, and after how many attempts it came
    back."""

    def __init__(self, scene, dice, units):
        self.scene, self.dice, self.units = scene, dice, units
        self.deferred, self.attempts = {}, {}
        self.takers, self.number, self.sent, self.passed_s = [], 0, 0, 0

    def bodies(self, count):
        self.number += count
        return [b"<%d>" % number for number in range(self.number - count, self.number)]

    def publish(self, count=0):
        for body in self.bodies(count or self.dice.choice([1, 3, 20])):
            self.send(b"PUB t\n", body, False)

    def defer(self, count=0):
        for body in self.bodies(count or self.dice.choice([1, 5, 20])):
            is_long = self.dice.random() < 0.7
            late_ms = HOUR_MS - self.dice.randrange(HOUR_MS // 4) if is_long else SOON_S * 500
            self.send(b"DPUB t %d\n" % late_ms, body, is_long)

    def send(self, command, body, is_deferred):
        self.deferred[body] = is_deferred
        self.scene.producer.send(command + sized(body))
        self.sent += 1

    def join(self):
        self.takers.append(self.scene.consumer(rdy=self.dice.choice([5, 50])))
        self.takers[-1].seen = {}

    def leave(self):
        if self.takers:
            with small_parts(self.units):
                self.takers.pop(self.dice.randrange(len(self.takers))).close()

    def held(self):
        """(taker, body, attempts) of what is in flight."""
        self.scene.registry.turn.end()
        for taker in self.takers:
            for kind, data in taker.decode_all():
                if kind == 2:
                    taker.ids[data[26:]] = data[10:26]
                    taker.seen[data[26:]] = int.from_bytes(data[8:10], "big")
        return [(taker, body, taker.seen[body]) for taker in self.takers for body in taker.ids]

    def some(self, things):
        return self.dice.sample(things, min(len(things), self.dice.choice([1, 3, 30])))

    def settle(self):
        for taker, body, attempts in self.some(self.held()):
            kind = self.dice.choice(["FIN", "REQ", "REQ", "late", "TOUCH", "TOUCH"])
            if kind == "TOUCH":
                taker.send(b"TOUCH %s\n" % taker.ids[body])
            elif kind == "FIN":
                del self.deferred[body]
                taker.finish(body)
            else:
                self.deferred[body], self.attempts[body] = kind == "late", attempts
                taker.requeue(body, HOUR_MS if kind == "late" else 0)

    def pick(self):
        """As an operator does."""
        held = self.some(self.held())
        late = self.some([body for body, is_late in self.deferred.items() if is_late])
        action = self.dice.choice(["drop", "requeue"])
        self.run_picker("ready", "requeue", b"%d>" % self.dice.randrange(10))
        for taker, body, _ in held:
            self.run_picker("in_flight", action, body)
            del taker.ids[body]
            self.note_picked(body, action)
        for body in late:
            self.run_picker("deferred", action, body)
            self.note_picked(body, action)

    def run_picker(self, state, action, needle):
        picker = Picker(self.scene.channel(), state, action, needle=needle)
        while not picker.is_over:
            if picker.needs_thread:
                picker.search()
            picker.go_on()

    def note_picked(self, body, action):
        if action == "drop":
            del self.deferred[body]
        else:
            self.deferred[body] = False

    def let_pass(self):
        if self.passed_s < PASSES_MAX * SOON_S:
            self.passed_s += SOON_S
            with small_parts(self.units):
                self.scene.pass_s(SOON_S, self.passed_s)

    def begin(self, has_channel):
        if has_channel:
            self.scene.channel()
            for _ in range(2):
                self.join()
        self.publish(self.dice.choice([0, 10, 200]))
        self.defer(self.dice.choice([0, 10, 200]))
        self.publish(self.dice.choice([0, 200]))
        if has_channel:
            for _ in range(3):
                self.settle()

    def do_something(self):
        steps = {
            self.publish: 5,
            self.defer: 5,
            self.settle: 20,
            self.join: 1,
            self.leave: 1,
            self.let_pass: 3,
            self.pick: 2,
        }
        self.dice.choices(list(steps), list(steps.values()))[0]()

    def take_answers(self):
        assert self.scene.answers(self.sent) == [OK] * self.sent
        self.sent = 0

    def end(self):
        """All that was done is in the log."""
        self.take_answers()
        self.scene.commit()
        return [
            [[body.decode(), is_late] for body, is_late in self.deferred.items()],
            [[body.decode(), count] for body, count in self.attempts.items()],
            self.passed_s,
        ]


def show_in_parts(play, do):
    """do() something between all parts of a checkpoint."""
    registry = play.scene.registry
    store = registry.durability.store
    count = store.log_figures()["checkpoint_count"]
    store.on_checkpoint(0)
    for parts in range(WAIT_S * 1000):
        with small_parts(play.units if parts < PARTS_MAX else NEVER):
            registry.timers.run(let_pass(0))
        if store.log_figures()["checkpoint_count"] > count:
            return
        assert not store.log_figures()["checkpoint_error"]
        if parts < PARTS_MAX:
            do()
        registry.turn.end()
        if select.select([registry.durability.fileno()], [], [], 0.0001)[0]:
            registry.turn.on_synced()
    raise AssertionError("no checkpoint")


def judge(scene, result):
    alive, attempts, passed_s = result
    now = sorted(body.encode() for body, is_late in alive if not is_late)
    late = sorted(body.encode() for body, is_late in alive if is_late)
    if now or late:
        assert sum(scene.counts()) == len(now) + len(late)
    taker, seen = scene.consumer(), {}
    for bodies, ahead_s in ((now, SOON_S), (late, HOUR_S)):
        passed_s += ahead_s
        scene.pass_s(ahead_s, passed_s)
        got = []
        for _ in range(WAIT_S * 20):
            found = taker.take()
            taker.finish(*[body for body, _ in found])
            got += found
            if len(got) >= len(bodies) and not found:
                break
        assert sorted(body for body, _ in got) == bodies
        seen.update(got)
    for body, count in attempts:
        assert seen.get(body.encode(), count + 1) > count


@pytest.mark.parametrize("seed", seeds("parts", 20))
def test_a_channel(folder, open_scene, seed):
    dice = random.Random(seed)
    mode, units = dice.choice(MODES), dice.choice([1, 3, 20, 64])
    options = {
        "mem_queue_size": dice.choice([0, 5, 1000]),
        "max_bytes_per_file": dice.choice([2000, 100 << 20]),
        # A TOUCH leads to an earlier deadline than those behind it have, or to the last.
        "max_msg_timeout_ns": dice.choice([TIMEOUT_NS, 2 * TIMEOUT_NS]),
    }
    kept_count = dice.choice([3, 1000])

    def work(scene):
        keep_deferred(kept_count)
        play = Play(scene, dice, units)
        play.begin(True)
        for _ in range(dice.choice([1, 2])):
            show_in_parts(play, play.do_something)
        for _ in range(dice.choice([0, 10])):
            play.do_something()
        return play.end()

    keep_deferred(kept_count)
    result = play_killed(folder, mode, work, **options)
    shift_wall(result[2] * SECOND_NS)
    judge(open_scene(mode, **options), result)


def test_a_publish_between_two_channels(folder, open_scene):
    """It is synced before the checkpoint counts: a power failure must not leave it in one of them alone."""
    scene = open_scene("interval")
    scene.channel("b")
    scene.channel("c")
    store = scene.registry.durability.store
    synced_s = store.log_figures()["commit_times"].sum_s
    store.on_checkpoint(0)
    for parts in range(WAIT_S * 1000):
        with small_parts(1):
            scene.registry.timers.run(let_pass(0))
        if (folder / "nsqd.commitlog" / "carried").exists():
            break
        if parts == 1:  # the topic was shown, and a channel
            scene.producer.send(b"PUB t\n" + sized(b"between"))
        run_turn(scene.registry, 0.0001)
    assert scene.counts("b") == scene.counts("c") == (1, 0, 0)
    assert store.log_figures()["commit_times"].sum_s > synced_s


@pytest.mark.parametrize("seed", seeds("parts of a topic", 6))
def test_a_topic_that_gets_a_channel(folder, open_scene, seed):
    dice = random.Random(seed)
    mode, units = dice.choice(MODES), dice.choice([1, 3, 20])
    options = {"mem_queue_size": dice.choice([0, 5, 1000])}

    def work(scene):
        play = Play(scene, dice, units)

        def do():
            dice.choice([play.publish, play.defer, play.let_pass])()
            if dice.random() < 0.1:
                scene.channel()

        play.begin(False)
        for _ in range(dice.choice([1, 2])):
            show_in_parts(play, do)
        return play.end()

    result = play_killed(folder, mode, work, **options)
    shift_wall(result[2] * SECOND_NS)
    scene = open_scene(mode, **options)
    scene.channel()
    for _ in range(20):
        run_turn(scene.registry)
    judge(scene, result)


def test_the_log_is_on_disk_up_to_the_last_part(open_scene):
    """Nothing else syncs it here. What changed between two parts is in the log alone."""
    scene = open_scene("interval")
    ring, filling = scene.registry.durability.store.log.ring, []
    scene.channel()
    scene.publish(*[b"x"] * 200)
    play = Play(scene, random.Random(1), 20)

    def do():
        play.publish(1)
        filling.append(ring.filling)

    show_in_parts(play, do)
    assert filling[0] < filling[5] <= ring.committed


@pytest.mark.parametrize("kept_count", [3, 1000], ids=["on disk", "in memory"])
@pytest.mark.parametrize("seed", seeds("parts of a heap", 3))
def test_deferred_ones_that_leave_a_heap(folder, open_scene, seed, kept_count):
    """The last of the heap comes to the place of one that leaves, which may have been shown."""
    dice = random.Random(seed)

    def work(scene):
        keep_deferred(kept_count)
        play = Play(scene, dice, dice.choice([1, 3]))
        scene.channel()
        for body in play.bodies(300):
            late_ms = HOUR_MS - dice.randrange(HOUR_MS // 4)
            play.send(b"DPUB t %d\n" % late_ms, body, True)
        play.take_answers()

        def drop():
            for body in dice.sample(sorted(play.deferred), min(len(play.deferred) - 20, 2)):
                play.run_picker("deferred", "drop", body)
                del play.deferred[body]

        show_in_parts(play, drop)
        return play.end()

    keep_deferred(kept_count)
    result = play_killed(folder, "always", work)
    judge(open_scene("always"), result)


def test_touched_ones_whose_deadline_is_before_that_of_others(folder, open_scene):
    """They are in a heap, beside those in flight whose order is that of their deadlines."""
    options = {"max_msg_timeout_ns": TIMEOUT_NS}

    def work(scene):
        play = Play(scene, random.Random(1), 3)
        scene.channel()
        play.takers.append(scene.consumer(rdy=100))
        (taker,), taker.seen = play.takers, {}
        for wait_s in (1, 2):
            play.publish(50)
            play.take_answers()
            play.held()
            scene.pass_s(1, wait_s)
        first = list(taker.ids)[:50]

        def touch():
            if first:
                taker.send(b"TOUCH %s\n" % taker.ids[first.pop()])

        for _ in range(30):
            touch()
        show_in_parts(play, touch)
        return play.end()

    result = play_killed(folder, "always", work, **options)
    shift_wall(result[2] * SECOND_NS)
    judge(open_scene("always", **options), result)
