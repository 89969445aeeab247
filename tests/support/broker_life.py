"""One life of a broker without sockets, in a process of its own that is killed or stops; a model follows each event."""

import collections
import contextlib
import gc
import json
import os
import random
import select
import signal
import time
import traceback

from nsqfast._ext.core.clock import now
from nsqfast._ext.dev.probes import let_pass, limit_recent, shift_wall

from models.broker_lives import LivesModel
from nsqfast.nsqd import metadata
from support.core import SECOND_NS, Peer, make_registry

RING_SIZE = 16 << 20
TOPICS, CHANNELS = ("t", "u"), ("a", "b", "c")
WAIT_S = 60
HOUR_MS = 3_600_000
TIMEOUT_NS = 800 * SECOND_NS
SMALL, LARGE = 200, 400_000
RARE_HEARTBEATS_S = 1_000_000
MODES = {
    "always": {"durable": "always"},
    "interval": {"durable": "interval"},
    "off": {},
}


def sized(data):
    return len(data).to_bytes(4, "big") + data


def body_of(number, size):
    return (b"%d." % number).ljust(size, b"x")  # at least the number


def open_registry(folder, mode, **options):
    """As the server does: what was answered is named, and its messages are found."""
    log = {"commit_log_size": RING_SIZE, "max_body_size": 2 << 20, "durable": "off"}
    log["max_heartbeat_interval_ns"] = RARE_HEARTBEATS_S * SECOND_NS
    options = log | options | MODES[mode]
    registry = make_registry(folder, msg_timeout_ns=TIMEOUT_NS, **options)
    metadata.load(registry.topics, str(folder))
    return registry


def list_names(registry):
    """[topic, channel or "", is_paused] of each queue."""
    found = []
    for topic in registry.topics.sorted():
        found.append([topic.name, "", topic.paused])
        found += [[topic.name, channel.name, channel.paused] for channel in topic.channels()]
    return found


def run_turn(registry, wait_s=0.0):
    """A turn of the loop, and what a commit that is done by then leads to."""
    registry.turn.end()
    if select.select([registry.durability.fileno()], [], [], wait_s)[0]:
        registry.turn.on_synced()
    registry.timers.run(let_pass(0))


class Producer(Peer):
    """Knows which of its publishes are not answered."""

    def __init__(self, registry):
        super().__init__(registry)
        self.send(b"IDENTIFY\n" + sized(b'{"heartbeat_interval":%d}' % (RARE_HEARTBEATS_S * 1000)))
        assert self.receive() == [(0, b"OK")]
        self.waiting = []


class Member(Producer):
    """A consumer."""

    def __init__(self, registry, number, topic, channel, rdy):
        super().__init__(registry)
        self.number, self.topic, self.channel, self.ids = number, topic, channel, {}
        self.subscribe(topic.encode(), channel.encode(), rdy)


class BrokerLife:
    """A life draws what happens in it; `ledger` outlives it."""

    def __init__(self, folder, seed, model, ledger):
        self.folder, self.model, self.ledger = folder, model, ledger
        self.dice = random.Random(seed)
        self.producers, self.members = [], {}
        self.sent = collections.Counter()  # messages to each topic that were not refused
        self.is_heavy = self.dice.random() < 0.3

    def note(self, *event):
        os.write(self.ledger, json.dumps(event).encode() + b"\n")
        self.model.apply(event)

    def draw_mode(self):
        if self.model.has_open_log:
            return self.dice.choice(["always", "always", "interval"])
        return self.dice.choice(["always", "always", "interval", "interval", "off"])

    def play(self, modes=None, has_end=False):
        """Until it is killed, or stops. has_end: all is taken out, and it stops."""
        dice = self.dice
        mode = self.draw_mode() if modes is None else dice.choice(modes)
        end = "stop" if mode == "off" else dice.choice(["stop", "kill", "kill", "alarm", "alarm"])
        if has_end:
            end = "stop"
        elif end == "alarm":
            signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.005, 0.5))
        self.note("opening", mode)
        shift_wall(self.model.ahead_ns)
        limit_recent(dice.choice([1000, 30_000, 32 << 20]))
        self.registry = open_registry(
            self.folder,
            mode,
            mem_queue_size=dice.choice([0, 3, 100]),
            max_bytes_per_file=dice.choice([1000, 50_000, 100 << 20]),
            durable_interval_ns=dice.choice([SECOND_NS // 1000, SECOND_NS, 3600 * SECOND_NS]),
            **({"sync_timeout_ns": SECOND_NS // 50} if dice.random() < 0.5 else {}),
        )
        self.note("opened", list_names(self.registry))
        self.producers = [Producer(self.registry) for _ in range(2)]
        if dice.random() < 0.7:
            self.write_names()
        self.look()
        for _ in range(dice.choice([0, 20, 150, 300])):
            self.step()
        if has_end or dice.random() < 0.4:
            self.drain()
        if end == "stop":
            self.stop()
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self):
        steps = {
            self.publish: 30,
            self.settle: 30,
            self.join: 5,
            self.leave: 2,
            self.let_pass: 3,
            self.wait: 8,
            self.make_channel: 2,
            self.delete_channel: 0.5,
            self.delete_topic: 0.3,
            self.empty: 0.6,
            self.pause: 1,
            self.pause_topic: 0.5,
            self.write_names: 1,
        }
        self.dice.choices(list(steps), list(steps.values()))[0]()
        if self.dice.random() < 0.6:
            self.look()

    # -- what publishers do --------------------------------------------------------------------------------------------

    def size(self):
        is_large = self.dice.random() < (0.3 if self.is_heavy else 0.02)
        return self.dice.randrange(8, LARGE if is_large else SMALL)

    def publish(self, producer=None):
        dice, topic = self.dice, self.dice.choice(TOPICS)
        kind = dice.choice(["PUB", "PUB", "MPUB", "DPUB"])
        count = dice.choice([1, 2, 5, 30]) if kind == "MPUB" else 1
        numbers = [self.model.number_count + 1 + i for i in range(count)]
        bodies = [body_of(number, self.size() // (1 + count // 5)) for number in numbers]
        delay_ms = dice.choice([10, 5000, HOUR_MS]) if kind == "DPUB" else 0
        due_ns = now()[0] + delay_ms * 1_000_000 if delay_ms else 0
        producer = producer or dice.choice(self.producers)
        self.note("sent", topic, numbers, due_ns)
        self.sent[topic] += count
        producer.waiting.append((self.model.publish_count, topic, count))
        if kind == "MPUB":
            inner = len(bodies).to_bytes(4, "big") + b"".join(map(sized, bodies))
            producer.send(b"MPUB %s\n" % topic.encode() + sized(inner))
        elif kind == "DPUB":
            producer.send(b"DPUB %s %d\n" % (topic.encode(), delay_ms) + sized(bodies[0]))
        else:
            producer.send(b"PUB %s\n" % topic.encode() + sized(bodies[0]))

    def hear(self):
        """Answers to publishes."""
        for number, producer in enumerate(self.producers):
            for kind, text in producer.decode_all():
                publish, topic, count = producer.waiting.pop(0)
                if (kind, text) == (0, b"OK"):
                    self.note("ok", publish)
                else:
                    self.note("refused", publish, text.decode())
                    self.sent[topic] -= count
                    assert not producer.waiting
                    self.producers[number] = Producer(self.registry)

    def wait_read(self):
        """Until no command waits for the log: what comes next may take another way."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            self.turn()
            if all(self.has_read(topic, count) for topic, count in self.sent.items()):
                return
            run_turn(self.registry, 0.05)
        raise AssertionError(f"not read: {self.sent}")

    def has_read(self, topic, count):
        found = self.registry.topics.find(topic)
        return count == (found.message_count if found else 0)

    def wait(self):
        """Until all is answered."""
        for _ in range(WAIT_S * 20):
            self.turn()
            if not any(producer.waiting for producer in self.producers):
                return
            run_turn(self.registry, 0.05)
        raise AssertionError(f"no answer: {[p.waiting for p in self.producers]}")

    # -- what consumers do ---------------------------------------------------------------------------------------------

    def join(self, key=None, rdy=None):
        dice = self.dice
        topic, channel = key or (dice.choice(TOPICS), dice.choice(CHANNELS))
        if key is None and len(self.members) >= 4:
            return
        self.wait_read()
        self.note("made", topic, channel)
        number = max(self.members, default=0) + 1
        rdy = dice.choice([0, 1, 5, 50]) if rdy is None else rdy
        self.members[number] = Member(self.registry, number, topic, channel, rdy)
        self.turn()
        self.wait_handed_over()

    def leave(self, number=None):
        if not self.members:
            return
        self.turn()
        member = self.members.pop(number or self.dice.choice(list(self.members)))
        self.note("left", member.number)
        member.close()

    def settle(self):
        """FIN or REQ."""
        held = [member for member in self.members.values() if member.ids]
        if not held:
            return
        for _ in range(self.dice.choice([1, 1, 5])):
            member = self.dice.choice(held)
            if not member.ids:
                continue
            number = self.dice.choice(list(member.ids))
            self.settle_one(member, number, self.dice.choice([None, None, None, 0, 10, HOUR_MS]))

    def settle_one(self, member, number, delay_ms):
        """delay_ms: of a REQ; None = FIN."""
        id, place = member.ids[number].pop(), (member.topic, member.channel, number)
        if not member.ids[number]:
            del member.ids[number]
        if delay_ms is None:
            self.note("finished", *place)
            member.send(b"FIN %s\n" % id)
        else:
            due_ns = now()[0] + delay_ms * 1_000_000 if delay_ms else 0
            self.note("requeued", *place, due_ns)
            member.send(b"REQ %s %d\n" % (id, delay_ms))

    def collect(self):
        """Messages that came."""
        for member in self.members.values():
            for kind, data in member.decode_all():
                if kind == 2:
                    attempts, id, body = int.from_bytes(data[8:10], "big"), data[10:26], data[26:]
                    number = int(body[: body.index(b".")])
                    place = (member.topic, member.channel, number)
                    self.note("got", member.number, *place, attempts, now()[0])
                    assert body == body_of(number, len(body))
                    member.ids.setdefault(number, []).append(id)
                else:
                    assert (kind, data) == (0, b"OK"), (kind, data)

    # -- time, and turns -----------------------------------------------------------------------------------------------

    def turn(self):
        run_turn(self.registry)
        self.registry.turn.end()
        self.hear()
        self.collect()

    def let_pass(self, duration_ns=None):
        self.turn()
        duration_ns = duration_ns or self.dice.choice([20_000_000, 6 * SECOND_NS, 3601 * SECOND_NS])
        is_timeout = duration_ns >= TIMEOUT_NS
        if is_timeout:
            self.wait_delivered()
        self.note("passed", self.model.ahead_ns + duration_ns, is_timeout)
        for member in self.members.values() if is_timeout else ():
            member.ids.clear()
        shift_wall(self.model.ahead_ns)
        self.registry.timers.run(let_pass(duration_ns))
        self.wait_delivered() if is_timeout else self.turn()

    def wait_delivered(self):
        """What is in flight has come: a consumer takes more when its output was sent, and that leaves a turn later."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            held = collections.Counter()
            for member in self.members.values():
                held[member.topic, member.channel] += sum(map(len, member.ids.values()))
            keys = [key for topic in self.model.topics() for key in self.model.channels(topic)]
            if all(self.find(*key).in_flight_count == held[key] for key in keys):
                return
            self.turn()
        raise AssertionError(f"in flight is not what came: {held}")

    def wait_handed_over(self):
        """A topic hands over its backlog in several turns, and the disk may be asked for it: until then an empty or
        a new channel takes another part of it than the model says."""
        for topic in self.model.topics():
            if self.model.queues[topic, ""].is_paused or not self.model.channels(topic):
                continue
            until = time.monotonic() + WAIT_S
            while time.monotonic() < until:
                if not self.count(topic, ""):
                    if topic in self.model.moving:
                        self.note("handed_over", topic)
                    break
                run_turn(self.registry, 0.01)
            else:
                raise AssertionError(f"topic {topic} keeps {self.count(topic, '')} messages")

    def look(self):
        """Take in what came, and compare all figures."""
        self.wait_read()
        self.wait_handed_over()
        self.turn()
        for key in [
            key
            for topic in self.model.topics()
            for key in [(topic, ""), *self.model.channels(topic)]
        ]:
            least, most = self.model.counts(key)
            count = self.count(*key)
            assert least <= count <= most, f"{key} has {count} messages, not {least} to {most}"

    def count(self, topic, channel):
        queue = self.find(topic, channel)
        return queue.depth + (queue.in_flight_count + queue.deferred_count if channel else 0)

    def find(self, topic, channel):
        queue = self.registry.topics.find(topic)
        return queue.find_channel(channel) if channel else queue

    # -- what an operator does -----------------------------------------------------------------------------------------

    def draw_channel(self):
        keys = [key for topic in self.model.topics() for key in self.model.channels(topic)]
        return self.dice.choice(keys) if keys else None

    def make_channel(self):
        topic, channel = self.dice.choice(TOPICS), self.dice.choice(CHANNELS)
        self.wait_read()
        self.note("made", topic, channel)
        self.registry.topics.ensure(topic).channel(channel)
        self.turn()
        self.wait_handed_over()

    def drop_members(self, topic, channel):
        """Their channel is gone, and so are they."""
        for number, member in list(self.members.items()):
            if member.topic == topic and channel in ("", member.channel):
                self.members.pop(number).close()

    def wait_removed(self):
        """As a request does that removes something; often nobody waits."""
        if self.dice.random() < 0.6:
            return
        removed = []
        self.registry.topics.when_removed(lambda: removed.append(True))
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            if removed:
                return
            run_turn(self.registry, 0.05)
        raise AssertionError("files are not removed")

    def delete_channel(self):
        key = self.draw_channel()
        if key is not None:
            self.wait_read()
            self.note("deleted", *key)
            self.registry.topics.find(key[0]).delete_channel(key[1])
            self.drop_members(*key)
            self.wait_removed()

    def delete_topic(self):
        if self.model.topics():
            topic = self.dice.choice(self.model.topics())
            self.wait_read()
            self.note("deleted", topic, "")
            self.registry.topics.delete(topic)
            del self.sent[topic]
            self.drop_members(topic, "")
            self.wait_removed()

    def empty(self):
        key = self.draw_channel()
        if self.model.topics() and self.dice.random() < 0.3:
            key = (self.dice.choice(self.model.topics()), "")
        if key is None:
            return
        self.wait_read()
        self.note("emptied", *key)
        self.find(*key).empty()
        for member in self.members.values():
            if (member.topic, member.channel) == key:
                member.ids.clear()
        self.wait_removed()

    def pause(self):
        key = self.draw_channel()
        if key is not None:
            self.set_pause(*key, not self.model.queues[key].is_paused)

    def pause_topic(self):
        if self.model.topics():
            topic = self.dice.choice(self.model.topics())
            self.set_pause(topic, "", not self.model.queues[topic, ""].is_paused)

    def set_pause(self, topic, channel, is_paused):
        """It is answered when nsqd.dat is written."""
        self.wait_read()
        self.note("paused", topic, channel, is_paused)
        queue = self.find(topic, channel)
        (queue.pause if is_paused else queue.unpause)()
        self.turn()
        self.wait_handed_over()
        self.write_names()

    def write_names(self):
        self.note("writing")
        metadata.write(str(self.folder), metadata.encode(self.registry.topics))
        self.note("wrote")

    # -- its end -------------------------------------------------------------------------------------------------------

    def stop(self):
        self.wait_read()
        self.write_names()
        for producer in self.producers:
            producer.connection.abort()
        for member in self.members.values():
            member.connection.abort()
        self.registry.topics.close()
        self.note("closed")

    def drain(self):
        """Take all that there is."""
        self.wait()
        for number in list(self.members):
            self.leave(number)
        for topic in self.model.topics():
            for key in [(topic, ""), *self.model.channels(topic)]:
                if self.model.queues[key].is_paused:
                    self.set_pause(*key, False)
                    self.look()
            if not self.model.channels(topic):
                self.join((topic, "a"), 0)
            for key in self.model.channels(topic):
                self.join(key, 2500)
        self.let_pass(3601 * SECOND_NS)
        for _ in range(WAIT_S * 20):
            self.turn()
            for member in self.members.values():
                for number in list(member.ids):
                    self.settle_one(member, number, None)
            keys = [key for topic in self.model.topics() for key in self.model.channels(topic)]
            if not any(self.count(*key) for key in keys):
                self.note("drained")
                return
            run_turn(self.registry, 0.001)
            self.let_pass(SECOND_NS)
        raise AssertionError(f"it does not come: {self.model.missing()[:20]}")


class Lives:
    """All lives of one folder."""

    def __init__(self, folder, ledger_path):
        self.folder, self.path = folder, ledger_path
        self.model = LivesModel()
        self.events = []

    def play(self, seed, **how):
        """One more life, in a process of its own. Return how it ended."""
        ledger = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        gc.collect()  # a child must not end the threads of what is garbage here
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                # At any instruction: the timer's signal is not handled.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                code = self.run(seed, ledger, how)
            os._exit(code)
        os.close(ledger)
        _, status = os.waitpid(pid, 0)
        self.read(os.WIFSIGNALED(status))
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return "killed" if os.WIFSIGNALED(status) else "stopped"

    def run(self, seed, ledger, how):
        try:
            BrokerLife(self.folder, seed, self.model, ledger).play(**how)
        except BaseException:
            event = ["failed", traceback.format_exc()]
            os.write(ledger, json.dumps(event).encode() + b"\n")
            raise
        return 0

    def read(self, is_killed):
        """What the process wrote down."""
        with open(self.path, "rb") as file:
            events = [json.loads(line) for line in file]
        for event in events:
            if event[0] == "failed":
                recent = "\n".join(str(e)[:200] for e in self.events[-40:])
                raise AssertionError(f"{recent}\n{event[1]}")
            self.events.append(event)
            self.model.apply(event)
        if is_killed:
            self.events.append(["killed"])
            self.model.apply(["killed"])
