"""Publishing one at a time from a program thread: the connection of its own, when there is one, and when it breaks."""

import asyncio
import errno
import gc
import os
import signal
import sys
import threading

import pytest

from nsqfast.client import Config, NotConnectedError, OutcomeUnknownError, PublishRefusedError
from nsqfast.client.sync import Consumer, Producer
from support.commands import run_command
from support.fake_nsqd import FakeNsqd
from support.server import start_nsqd
from support.waiting import eventually
from support.web import stats, topic_stats

WAIT_S = 20.0


def place(server):
    return "{}:{}".format(*server.tcp)


def producers(server):
    """How many connections publish there."""
    return len(stats(server.http, include_clients="true").get("producers") or [])


def until_direct(producer, topic, count=1):
    """Publish until the calling thread does it itself, on so many connections."""
    published, before = 0, producer._route.published
    producer._route._refresh_at_s = 0.0

    def is_there():
        nonlocal published
        producer.publish(topic, b"warm-up")
        published += 1
        return producer._route.published > before and len(producer._route._directs) == count

    eventually(is_there)
    return published


@pytest.fixture
def own(implementation, tmp_path):
    """A broker of the test's own."""
    with start_nsqd(implementation, tmp_path) as server:
        yield server


def test_only_for_those_who_need_it(own, topic):
    """Neither a program that sends, nor one that publishes once, has a second connection."""
    with Producer(place(own)) as producer:
        producer.publish(topic, b"x")
        for _ in range(100):
            producer.send(topic, b"x")
        producer.flush()
        producer.publish_many(topic, [b"x", b"y"])
        assert producers(own) == 1
        count = until_direct(producer, topic)
        assert producers(own) == 2
        assert producer.stats().published == 102 + count
        assert producer.stats().connects == 1
    eventually(lambda: producers(own) == 0)
    assert topic_stats(own.http, topic)["message_count"] == 103 + count


def test_no_descriptor_is_left(own, topic, monkeypatch, caplog):
    """It is published by the loop then, and the connection that was meant for it is closed."""

    def fail(_fd):
        tries.append(1)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with Producer(place(own)) as producer:
        producer.publish(topic, b"x")
        tries = []
        monkeypatch.setattr(os, "dup", fail)

        def has_tried():
            producer._route._refresh_at_s = 0.0
            producer.publish(topic, b"x")
            return len(tries) >= 3 and not producer._route._is_refreshing

        eventually(has_tried)
        eventually(lambda: producers(own) == 1)
        monkeypatch.undo()
        gc.collect()
        assert producer._route.published == 0
        until_direct(producer, topic)
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("packing", ["snappy", "deflate"])
def test_not_with_compression(own, topic, packing):
    with Producer(place(own), config=Config(**{packing: True})) as producer:
        for _ in range(20):
            producer.publish(topic, b"x")
            producer._route._refresh_at_s = 0.0
        assert producers(own) == 1
        assert producer._route.published == 0


def test_order(address, topic):
    """A publish does not overtake what was sent before it, nor the other way round."""
    bodies = [b"%d" % number for number in range(3000)]
    with Producer(address) as producer:
        until_direct(producer, f"{topic}-warm-up")
        for number, body in enumerate(bodies):
            (producer.publish if number % 3 else producer.send)(topic, body)
    config = Config(max_in_flight=100)
    with Consumer(topic, "c", nsqd=address, config=config) as consumer:
        found = []
        for _ in bodies:
            message = consumer.get(WAIT_S)
            found.append(message.body)
            message.finish()
    assert found == bodies


@pytest.mark.parametrize(
    ("name", "body", "kind", "error"),
    [
        ("a b", b"x", PublishRefusedError, "E_BAD_TOPIC"),
        ("", b"x", PublishRefusedError, "E_BAD_TOPIC"),
        ("t", b"", PublishRefusedError, "E_BAD_MESSAGE"),
        ("t", "text", TypeError, "bytes, not str"),
        ("t", None, TypeError, "bytes, not NoneType"),
    ],
)
def test_what_is_refused_here(address, topic, name, body, kind, error):
    with Producer(address) as producer:
        until_direct(producer, topic)
        with pytest.raises(kind, match=error):
            producer.publish(name, body)
        before = producer._route.published
        producer.publish(topic, b"and on it goes")
        assert producer._route.published == before + 1
        assert producer.stats().failed == 0


def test_what_nsqd_refuses(address, topic):
    """It is said, counted, and hangs up; the loop's connection goes on, and soon there is another direct one."""
    with Producer(address) as producer:
        until_direct(producer, topic)
        with pytest.raises((PublishRefusedError, OutcomeUnknownError)):
            producer.publish(topic, b"x" * (1 << 20) + b"y")
        assert producer.stats().failed == 1
        producer.publish(topic, b"and on it goes")
        until_direct(producer, topic)


def test_other_forms_of_bytes(address, topic):
    with Producer(address) as producer:
        until_direct(producer, f"{topic}-warm-up")
        producer.publish(topic, bytearray(b"one"))
        producer.publish(topic, memoryview(b"two"))
    with Consumer(topic, "c", nsqd=address, config=Config(max_in_flight=2)) as consumer:
        assert [consumer.get(WAIT_S).body for _ in range(2)] == [b"one", b"two"]


def test_a_killed_broker_that_comes_back(implementation, tmp_path, topic):
    server = start_nsqd(implementation, tmp_path)
    address = place(server)
    try:
        with Producer(address) as producer:
            until_direct(producer, topic)
            server.kill()
            published = threading.Event()

            def publish():
                producer.publish(topic, b"waits")
                published.set()

            thread = threading.Thread(target=publish)
            thread.start()
            server = start_nsqd(implementation, tmp_path, f"--tcp-address={address}")
            assert published.wait(WAIT_S)
            thread.join()
            until_direct(producer, topic)
            assert producer.stats().failed == 0
    finally:
        server.kill()


def test_nobody_there(implementation, tmp_path, topic):
    server = start_nsqd(implementation, tmp_path)
    try:
        with Producer(place(server), timeout_s=1.5) as producer:
            until_direct(producer, topic)
            server.kill()
            with pytest.raises(NotConnectedError, match="no connection in time"):
                producer.publish(topic, b"x")
    finally:
        server.kill()


class Script:
    """The first connection takes everything; what the others do with a PUB is the test's."""

    def __init__(self, on_publish):
        self.taken = []
        self.connections = 0
        self.on_publish = on_publish

    async def __call__(self, peer):
        self.connections += 1
        number = self.connections
        said = await peer.greet()
        assert said["heartbeat_interval"] == (30_000 if number == 1 else -1)
        async for name, _, body in peer.commands():
            if name != "PUB":
                continue
            if number > 1 and body != b"warm-up":
                if not await self.on_publish(peer, body):
                    return
            else:
                self.taken.append(body)
                peer.respond(b"OK")


def with_fake(run, on_publish, work, **options):
    """Call `work(producer, script)` in a thread while the peer talks in the loop."""

    async def main():
        script = Script(on_publish)
        async with FakeNsqd(script) as fake:

            def program():
                with Producer(fake.address, **options) as producer:
                    until_direct(producer, "t")
                    work(producer, script)

            await asyncio.to_thread(program)

    run(main())


async def hang_up(_peer, _body):
    return False


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_connection_that_breaks_before_the_answer(run, retries):
    """Sent again over the loop, where that is allowed; counted as there."""

    def work(producer, script):
        if retries == 0:
            with pytest.raises(OutcomeUnknownError, match="nsqd closed the connection"):
                producer.publish("t", b"x")
            assert producer.stats().failed == 1
            assert b"x" not in script.taken
        else:
            producer.publish("t", b"x")
            assert script.taken[-1] == b"x"
            assert (producer.stats().failed, producer.stats().resent) == (0, 1)

    with_fake(run, hang_up, work, retries=retries)


def test_one_that_is_about_to_stop(run):
    """E_PUB_FAILED: the loop may find another one; here it is the same one's other connection."""

    async def refuse(peer, _body):
        peer.refuse("E_PUB_FAILED PUB failed exiting")
        return True

    def work(producer, script):
        producer.publish("t", b"x")
        assert script.taken[-1] == b"x"
        assert (producer.stats().failed, producer.stats().resent) == (0, 0)

    with_fake(run, refuse, work)


def test_one_that_hangs(run):
    """Others publish over the loop meanwhile; time is up when it is."""

    async def silence(peer, _body):
        await peer.read_to_end()

    def work(producer, script):
        errors = []

        def hang():
            try:
                producer.publish("t", b"hangs")
            except OutcomeUnknownError as error:
                errors.append(str(error))

        thread = threading.Thread(target=hang)
        thread.start()
        eventually(lambda: producer._route._lock.locked())
        producer.publish("t", b"goes on")
        assert script.taken[-1] == b"goes on"
        thread.join()
        assert errors == ["no answer in time"]

    with_fake(run, silence, work, timeout_s=0.5)


def test_several_take_turns(implementation, tmp_path_factory, topic):
    servers = [start_nsqd(implementation, tmp_path_factory.mktemp("n")) for _ in range(3)]
    first, second, third = addresses = [place(server) for server in servers]

    def counts():
        return [topic_stats(server.http, topic)["message_count"] for server in servers]

    try:
        with Producer(addresses) as producer:
            eventually(lambda: all(producer.stats().connections.values()))
            for server in servers:  # each has the topic
                with Producer(place(server)) as one:
                    one.publish(topic, b"x")
            until_direct(producer, f"{topic}-warm-up", 3)
            before = counts()
            for _ in range(30):
                producer.publish(topic, b"x")
            assert [after - count for after, count in zip(counts(), before, strict=True)] == [
                10
            ] * 3
            producer.drop_nsqd(second)
            before = counts()
            for _ in range(30):
                producer.publish(topic, b"x")
            assert counts()[1] == before[1]
            eventually(lambda: producers(servers[1]) == 0)
            servers[0].kill()
            for _ in range(30):
                producer.publish(topic, b"x")
            assert topic_stats(servers[2].http, topic)["message_count"] >= before[2] + 30
            assert list(producer.stats().connections) == [first, third]
    finally:
        for server in servers:
            server.kill()


def test_sticky(implementation, tmp_path_factory, topic):
    servers = [start_nsqd(implementation, tmp_path_factory.mktemp("n")) for _ in range(2)]
    try:
        with Producer([place(server) for server in servers], sticky=True) as producer:
            eventually(lambda: all(producer.stats().connections.values()))
            until_direct(producer, topic, 2)
            for _ in range(20):
                producer.publish(topic, b"x")
            assert not stats(servers[1].http).get("topics")
            servers[0].kill()
            producer.publish(topic, b"over there")
            assert topic_stats(servers[1].http, topic)["message_count"] == 1
    finally:
        for server in servers:
            server.kill()


def test_many_threads(address, topic):
    """One of them has the connection at a time, the others go over the loop; nothing is lost or doubled."""
    with Producer(address) as producer:
        until_direct(producer, f"{topic}-warm-up")

        def publish(number):
            for n in range(250):
                producer.publish(topic, b"%d" % (number * 250 + n))

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    config = Config(max_in_flight=100)
    with Consumer(topic, "c", nsqd=address, config=config) as consumer:
        found = []
        for _ in range(2000):
            message = consumer.get(WAIT_S)
            found.append(int(message.body))
            message.finish()
    assert sorted(found) == list(range(2000))


INTERRUPTED = """
import os, signal, sys, threading
from nsqfast.client.sync import Producer

handled = threading.Event()

def on_interrupt(*_):
    if not handled.is_set():
        handled.set()
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, on_interrupt)
producer = Producer(sys.argv[1])
while not producer._route.published:
    producer.publish("t", b"x")
nsqd = int(sys.argv[2])
os.kill(nsqd, signal.SIGSTOP)
while "T (stopped)" not in open(f"/proc/{nsqd}/status").read():
    pass
(direct,) = producer._route._directs.values()

def interrupt():
    while not direct.is_busy:
        pass
    while not handled.wait(0.02):  # one may come in the moment before a system call
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    producer.publish("t", b"hangs")
except KeyboardInterrupt:
    print("interrupted", flush=True)
os.kill(nsqd, signal.SIGCONT)
producer.publish("t", b"y")
producer.close()
print("published")
"""


def test_interrupted(own):
    """Ctrl-C ends the wait for an nsqd that hangs, and what follows is not taken for its answer."""
    try:
        done = run_command(sys.executable, "-c", INTERRUPTED, place(own), str(own.process.pid))
    finally:
        own.process.send_signal(signal.SIGCONT)
    assert (done.stdout, done.returncode) == ("interrupted\npublished\n", 0), done.stderr
