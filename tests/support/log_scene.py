"""A broker with a commit log, who publishes to it and who consumes, and what kills it."""

import contextlib
import gc
import json
import os
import signal
import traceback

from nsqfast._ext.dev.probes import let_pass, shift_wall

from nsqfast.nsqd import metadata
from support.broker_life import WAIT_S, Producer, open_registry, run_turn, sized
from support.core import SECOND_NS

HOUR_S, HOUR_MS = 3600, 3_600_000
OK = (0, b"OK")
MODES = ("always", "interval")
# Nothing is synced by time, so what is kept is what the kernel has.
LONG_NS = 24 * HOUR_S * SECOND_NS
LONG = {"durable_interval_ns": LONG_NS}


class Scene:
    """A broker, and who publishes to it."""

    def __init__(self, folder, mode, **options):
        self.folder = folder
        self.registry = open_registry(folder, mode, **LONG | options)
        self.producer = Producer(self.registry)

    def topic(self, name="t"):
        return self.registry.topics.ensure(name)

    def channel(self, name="c", topic="t"):
        return self.topic(topic).channel(name)

    def answers(self, count):
        """Of the producer, in order."""
        got = []
        for _ in range(WAIT_S * 20):
            run_turn(self.registry, 0 if len(got) < count else 0.0)
            got += self.producer.decode_all()
            if len(got) >= count:
                return got
            run_turn(self.registry, 0.05)
        raise AssertionError(f"{len(got)} answers of {count}")

    def publish(self, *bodies, topic=b"t", delay_ms=0):
        """Return when all have their OK."""
        verb = b"DPUB %s %d\n" % (topic, delay_ms) if delay_ms else b"PUB %s\n" % topic
        for body in bodies:
            self.producer.send(verb + sized(body))
        assert self.answers(len(bodies)) == [OK] * len(bodies)

    def commit(self):
        """All that was done until now is kept when the OK of a later publish has come."""
        for _ in range(2):
            run_turn(self.registry)
        self.publish(b"x", topic=b"barrier")

    def consumer(self, channel=b"c", topic=b"t", rdy=2500):
        return Taker(self, topic, channel, rdy)

    def stop(self):
        metadata.write(str(self.folder), metadata.encode(self.registry.topics))
        self.registry.topics.close()

    def pass_s(self, seconds, total_s=None):
        """On both clocks; total_s: how far the wall clock is ahead then."""
        shift_wall((seconds if total_s is None else total_s) * SECOND_NS)
        self.registry.timers.run(let_pass(seconds * SECOND_NS))

    def counts(self, channel="c", topic="t"):
        """(queued, in flight, deferred)"""
        channel = self.topic(topic).find_channel(channel)
        return channel.depth, channel.in_flight_count, channel.deferred_count


class Taker(Producer):
    """A consumer."""

    def __init__(self, scene, topic, channel, rdy):
        super().__init__(scene.registry)
        self.subscribe(topic, channel, rdy)
        self.ids, self.rdy = {}, rdy

    def take(self, count=None):
        """(body, attempts) of what comes; count: how many have to."""
        got = []
        for _ in range(WAIT_S * 20 if count else 3):
            run_turn(self.registry, 0.001 if count else 0)
            self.registry.turn.end()
            for kind, data in self.decode_all():
                if kind == 2:
                    self.ids[data[26:]] = data[10:26]
                    got.append((data[26:], int.from_bytes(data[8:10], "big")))
            if count and len(got) >= count:
                break
        assert count is None or len(got) == count
        return got

    def bodies(self, count=None):
        return [body for body, _ in self.take(count)]

    def take_all(self, count):
        """Finish so many messages; return their bodies."""
        got = []
        while len(got) < count:
            bodies = self.bodies(min(count - len(got), self.rdy))
            self.finish(*bodies)
            got += bodies
        assert self.take() == []
        return got

    def finish(self, *bodies):
        for body in bodies:
            self.send(b"FIN %s\n" % self.ids.pop(body))

    def requeue(self, body, delay_ms=0):
        self.send(b"REQ %s %d\n" % (self.ids.pop(body), delay_ms))


def make_checkpoint(scene):
    store = scene.registry.durability.store
    count = store.log_figures()["checkpoint_count"]
    store.on_checkpoint(0)
    for _ in range(WAIT_S * 100):
        run_turn(scene.registry, 0.01)
        if store.log_figures()["checkpoint_count"] > count:
            return
    raise AssertionError("no checkpoint")


def play_killed(folder, mode, work, alarm_s=0.0, **options):
    """Start a broker in a process of its own, which work(scene) uses, and kill it then, or when the alarm comes."""
    reading, writing = os.pipe()
    gc.collect()  # a child must not end the threads of what is garbage here
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            # At any instruction: the timer's signal is not handled.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, alarm_s)
            try:
                result = [work(Scene(folder, mode, **options)), ""]
            except BaseException:
                result = [None, traceback.format_exc()]
            os.write(writing, json.dumps(result).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    result, trouble = json.loads(answer) if answer else (None, "")
    assert not trouble, trouble
    assert answer or alarm_s, "it ended by itself"
    return result


def numbered(*numbers):
    return [b"%d" % number for number in numbers]
