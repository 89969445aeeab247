"""Plain publishes over HTTP to a broker with a commit log: their answers come after the commit, and in order.

As in test_http_shortcut.py, but what a connection sends goes to two brokers with a log, and commits come in between.
"""

import asyncio
import contextlib
import gc
import os
import random
import select
import socket
import threading
import weakref

import pytest
from nsqfast._ext.dev.probes import fix_parts, let_pass

from nsqd.test_http_shortcut import CREATING, OTHER, PLAIN, mix
from nsqfast.net.http_server import CONTINUE
from nsqfast.nsqd.metrics import answered
from support.core import NEVER
from support.http import DATE, HttpBroker, post
from support.seeds import seeds
from support.server import start_nsqd
from support.web import post as post_now
from support.web import topic_stats
from support.wire import Client

MODES = ("always", "interval")
RING_SIZE = 16 << 20
WAIT_S = 60
OWED_MAX = 64  # answers of one connection
OK = b"HTTP/1.1 200 OK\r\n"
NO_MESSAGES = post("/mpub?topic=t", b"\n\n")
FULL = [sent for sent in PLAIN if not sent.endswith(NO_MESSAGES[-5:])]


@pytest.fixture(autouse=True)
def endless_parts():
    """A loaded machine changes no answer."""
    fix_parts(NEVER)
    yield
    fix_parts(0)


class LogBroker(HttpBroker):
    """Commits when it is told."""

    def __init__(self, folder, mode, has_shortcut=True, **changed):
        super().__init__(folder, has_shortcut, durable=mode, commit_log_size=RING_SIZE, **changed)
        self.registry.topics.ensure("t")
        self.connections = []
        self.has_failed_log = False

    def connect(self, *host):
        protocol, wire = super().connect(*host)
        self.connections.append(protocol)
        return protocol, wire

    async def run_turn(self, wait_s=0.0):
        """The turn's end, what is due, and what a commit leads to that is done by then."""
        self.registry.timers.run(let_pass(0))
        self.registry.turn.end()
        if select.select([self.registry.durability.fileno()], [], [], wait_s)[0]:
            self.registry.turn.on_synced()
        for _ in range(3):
            await asyncio.sleep(0)

    async def settle(self):
        """Until nobody waits for an answer."""
        for _ in range(WAIT_S * 10):
            await self.run_turn()
            if not any(each.owed_count or each._unanswered for each in self.connections):
                return
            await self.run_turn(0.1)
        raise AssertionError("answers are missing")

    def fail_log(self):
        """No write to it succeeds from now on."""
        self.has_failed_log = True
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                name = os.readlink(f"/proc/self/fd/{fd}")
            except FileNotFoundError:
                continue
            if name.startswith(self.registry.settings.data_path) and "/nsqd.commitlog/" in name:
                os.dup2(nothing, fd, inheritable=False)
        os.close(nothing)


@pytest.fixture
def make_broker(tmp_path):
    brokers = []

    def make(mode="always", **changed):
        brokers.append(LogBroker(tmp_path / str(len(brokers)), mode, **changed))
        return brokers[-1]

    yield make
    for broker in brokers:
        refused = pytest.raises(OSError, match="the commit log is not closed")
        with refused if broker.has_failed_log else contextlib.nullcontext():
            broker.registry.topics.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sent", FULL, ids=lambda sent: f"{sent[:60]!r}")
def test_an_answer_after_the_commit(make_broker, mode, sent):
    async def talk():
        broker = make_broker(mode)
        protocol, wire = broker.connect()
        head_size = sent.index(b"\r\n\r\n") + 4
        for number, pieces in enumerate([[sent], [sent[:head_size], sent[head_size:]]], 1):
            for piece in pieces:
                protocol.data_received(piece)
            assert wire.written.count(OK) == number - 1
            assert wire.is_reading
            await broker.settle()
            assert wire.written.count(OK) == number
        assert broker.asked == []

    asyncio.run(talk())


def test_interval_mode_answers_at_the_turns_end(make_broker):
    broker = make_broker("interval")

    async def talk():
        protocol, wire = broker.connect()
        protocol.data_received(PLAIN[0] * 3)
        assert wire.written == b""
        broker.registry.turn.end()
        assert wire.written.count(OK) == 3

    asyncio.run(talk())


async def hear(broker, pieces, dice, has_eof):
    """What one connection answers, and how it ends; commits come when the dice say so."""
    protocol, wire = broker.connect()
    for piece in pieces:
        if wire.ended:
            break
        protocol.data_received(piece)
        await asyncio.sleep(0)
        if dice.random() < 0.5:
            await broker.run_turn(dice.choice([0, 0.001]))
        if not wire.is_reading:
            await broker.settle()
    await broker.settle()
    if has_eof and not wire.ended and not protocol.eof_received():
        wire.close()  # as asyncio does
    await broker.settle()
    protocol.connection_lost(None)
    # Whether it comes before the body depends on what the disk has by then.
    written = wire.written.replace(CONTINUE, b"")
    return DATE.sub(b"Date\r\n", written), wire.ended


@pytest.mark.parametrize("seed", seeds("http owed", 6))
@pytest.mark.parametrize("mode", MODES)
def test_answers_in_order_as_without_a_shortcut(make_broker, mode, seed):
    def play(has_shortcut):
        broker = make_broker(mode, has_shortcut=has_shortcut, mem_queue_size=100_000)
        before = answered()

        async def talk():
            dice = random.Random(seed)
            results = []
            for _ in range(150):
                pieces = [piece for piece in mix(dice) if piece]
                has_eof, timing = dice.random() < 0.3, random.Random(dice.random())
                results.append((pieces, await hear(broker, pieces, timing, has_eof)))
            return results

        results = asyncio.run(talk())
        return results, broker.topics(), answered() - before, broker

    *one, broker = play(True)
    *other, _ = play(False)
    for with_shortcut, without in zip(one[0], other[0], strict=True):
        assert with_shortcut == without
    assert one[1:] == other[1:]
    assert broker.registry.topics.find("t").message_count > len(broker.asked) > 0


def test_each_kind_behind_what_is_owed(make_broker):
    ping = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
    streams = [PLAIN[0] * 2 + sent + PLAIN[4] + ping + PLAIN[0] for sent in CREATING + OTHER]

    def play(has_shortcut):
        broker = make_broker(has_shortcut=has_shortcut)

        async def talk():
            return [await hear(broker, [each], random.Random(1), has_eof=True) for each in streams]

        return asyncio.run(talk())

    assert play(True) == play(False)


def test_an_ephemeral_topic_answers_behind_what_is_owed(make_broker):
    broker = make_broker()

    async def talk():
        broker.registry.topics.ensure("e#ephemeral").channel("c#ephemeral")
        protocol, wire = broker.connect()
        protocol.data_received(post("/pub?topic=e#ephemeral", b"x"))
        assert wire.written.count(OK) == 1
        protocol.data_received(PLAIN[0] + post("/pub?topic=e#ephemeral", b"x") + PLAIN[0])
        assert wire.written.count(OK) == 1
        assert broker.asked == []
        await broker.settle()
        assert wire.written.count(OK) == 4

    asyncio.run(talk())


def test_an_mpub_of_empty_lines_waits_for_nothing(make_broker):
    broker = make_broker()

    async def talk():
        protocol, wire = broker.connect()
        protocol.data_received(NO_MESSAGES)
        assert wire.written.count(OK) == 1
        protocol.data_received(PLAIN[0] + NO_MESSAGES)
        assert wire.written.count(OK) == 1
        await broker.settle()
        assert wire.written.count(OK) == 3

    asyncio.run(talk())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "sent",
    [
        post("/mpub?topic=t", b"one\ntwo\n"),
        post("/mpub?topic=t&binary=true", b"\0\0\0\2" + 2 * b"\0\0\0\1x"),
    ],
)
def test_an_mpub_waits_while_much_is_gathered(make_broker, mode, sent):
    """As those over TCP do, whose connections read no more."""
    broker = make_broker(mode, max_body_size=1 << 20)
    topic = broker.registry.topics.find("t")

    async def talk():
        _, wire = broker.connect()
        for size in [1 << 20] * 3 + [990_000]:
            topic.put(bytes(size))
        broker.connections[0].data_received(sent)
        assert wire.written == b""
        await broker.settle()
        assert wire.written.startswith(OK)
        assert topic.message_count == 6

    asyncio.run(talk())


def test_what_is_owed_to_one_connection_is_bounded(make_broker):
    broker = make_broker()
    topic = broker.registry.topics.find("t")

    async def talk():
        protocol, wire = broker.connect()
        protocol.data_received(PLAIN[0] * 300)
        assert topic.message_count == protocol.owed_count == OWED_MAX
        assert not wire.is_reading
        protocol.data_received(PLAIN[0])  # was on its way
        assert topic.message_count == OWED_MAX
        for _ in range(WAIT_S * 10):
            await broker.settle()
            assert protocol.owed_count <= OWED_MAX
            if wire.written.count(OK) == 301:
                break
        assert wire.written.count(OK) == topic.message_count == 301
        assert wire.is_reading
        assert broker.asked == []

    asyncio.run(talk())


@pytest.mark.parametrize("way", ["lost", "close"])
def test_a_connection_that_ends_before_its_answer(make_broker, way):
    broker = make_broker()

    async def talk():
        protocol, wire = broker.connect()
        protocol.data_received(PLAIN[0] * 3)
        known = weakref.ref(protocol)
        if way == "close":
            protocol.close()
        protocol.connection_lost(None)
        broker.connections.clear()
        wire.protocol = protocol = None
        await asyncio.sleep(0)
        gc.collect()
        assert known() is None
        for _ in range(3):
            await broker.run_turn(0.1)
        assert wire.written == b""
        other, wire = broker.connect()
        other.data_received(PLAIN[0])
        await broker.settle()
        assert wire.written.count(OK) == 1

    asyncio.run(talk())
    assert broker.registry.topics.find("t").depth == 4


def test_a_peer_that_sends_its_end_is_still_answered(make_broker):
    broker = make_broker()

    async def talk():
        protocol, wire = broker.connect()
        protocol.data_received(PLAIN[0] * 2)
        assert protocol.eof_received()
        await broker.settle()
        assert wire.written.count(OK) == 2
        assert wire.ended == ["close"]

    asyncio.run(talk())


@pytest.mark.parametrize("mode", MODES)
def test_a_log_that_fails(make_broker, mode):
    """All that wait are told, and whoever comes later, with the words of a handler."""

    def play(has_shortcut):
        broker = make_broker(mode, has_shortcut=has_shortcut)
        before = answered()

        async def talk():
            protocol, wire = broker.connect()
            protocol.data_received(PLAIN[0])
            await broker.settle()
            broker.fail_log()
            protocol.data_received(PLAIN[0] * 2 + PLAIN[4])
            assert wire.written.count(b"HTTP/1.1 ") == 1
            await broker.settle()
            assert wire.written.count(b"HTTP/1.1 503 ") == 3
            assert wire.written.count(b"the commit log cannot be written: ") == 3
            protocol.data_received(PLAIN[0])
            await broker.settle()
            assert wire.written.count(b"HTTP/1.1 503 ") == 4
            return DATE.sub(b"", wire.written)

        return asyncio.run(talk()), answered() - before

    assert play(True) == play(False)


CHANGES = [
    "/topic/create?topic=new",
    "/channel/create?topic=t&channel=new",
    "/topic/empty?topic=alone",
    "/topic/delete?topic=t",
    "/channel/empty?topic=t&channel=c",
    "/channel/delete?topic=t&channel=c",
    "/channel/messages/drop?topic=t&channel=c&filter=hello",
    "/channel/messages/requeue?topic=t&channel=c&filter=later&state=deferred",
]


async def prepare(broker):
    """What there is to change, in the log already."""
    broker.registry.topics.find("t").channel("c")
    broker.registry.topics.ensure("alone")
    protocol, wire = broker.connect()
    protocol.data_received(PLAIN[0] + PLAIN[2] + post("/pub?topic=alone", b"x"))
    await broker.settle()
    assert wire.written.count(OK) == 3
    return broker.connect()


async def let_work(broker):
    """Everything but a commit."""
    for _ in range(20):
        broker.registry.timers.run(let_pass(0))
        await asyncio.sleep(0)


@pytest.mark.parametrize("target", CHANGES)
@pytest.mark.parametrize("mode", MODES)
def test_a_change_is_answered_after_its_commit(make_broker, mode, target):
    broker = make_broker(mode)

    async def talk():
        protocol, wire = await prepare(broker)
        protocol.data_received(post(target, b""))
        await let_work(broker)
        assert wire.written == b""
        for _ in range(3):  # of a topic that is deleted channels go in later turns
            await broker.run_turn(1)
            await let_work(broker)
        await broker.settle()
        assert wire.written.count(OK) == 1

    asyncio.run(talk())


@pytest.mark.parametrize("target", CHANGES)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_change_that_the_log_does_not_take(make_broker, target, is_known):
    broker = make_broker()

    async def talk():
        protocol, wire = await prepare(broker)
        broker.fail_log()
        if is_known:
            other, _ = broker.connect()
            other.data_received(PLAIN[0])
            await broker.settle()
        protocol.data_received(post(target, b""))
        await let_work(broker)
        await broker.settle()
        assert wire.written.startswith(b"HTTP/1.1 500 ")

    asyncio.run(talk())


def publish_over(address, number, count, accepted, window=20):
    """Keep some requests of a connection in the air; note what was answered by OK, which is the oldest of them."""
    waiting = []
    with socket.create_connection(address) as sock, sock.makefile("rb") as answers:
        for each in range(count):
            body = b"%d-%d" % (number, each)
            sock.sendall(post("/pub?topic=t", body, host="Host: localhost\r\n"))
            waiting.append(body)
            while len(waiting) >= window or (waiting and each == count - 1):
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = answers.readline()
                    if not line:
                        return
                    head += line
                assert head.startswith(OK)
                assert answers.read(2) == b"OK"
                accepted.append(waiting.pop(0))


@pytest.mark.parametrize("mode", MODES)
def test_what_was_answered_is_there_after_a_kill(tmp_path, mode):
    flags = (f"--durable={mode}", f"--commit-log-size={RING_SIZE}", "--max-body-size=2097152")
    accepted = []
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        post_now(server.http, "/topic/create?topic=t")
        post_now(server.http, "/channel/create?topic=t&channel=c")

        def run(number):
            with contextlib.suppress(OSError):  # it was killed
                publish_over(server.http, number, 10**9, accepted)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        while len(accepted) < 3000:
            threads[0].join(0.01)
            assert all(thread.is_alive() for thread in threads)
        server.kill()
        for thread in threads:
            thread.join(WAIT_S)
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        depth = topic_stats(server.http, "t")["channels"]["c"]["depth"]
        client.sub("t", "c", 2000)
        found = set()
        for _ in range(depth):
            message = client.read_message()
            found.add(message.body)
            client.fin(message)
    assert found >= set(accepted)
