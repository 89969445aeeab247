"""Producer and Consumer without an event loop: threads, forks, pickles, and programs that just end."""

import os
import pickle
import re
import sys
import threading
import traceback

import pytest

from nsqfast.client import (
    ClosedError,
    Config,
    OptionsError,
    OutcomeUnknownError,
    PublishRefusedError,
    RefusedError,
)
from nsqfast.client.sync import Consumer, Producer
from support.commands import run_command
from support.waiting import eventually
from support.web import topic_stats

CONFIG = Config(max_in_flight=100, default_requeue_delay_s=0, max_backoff_duration_s=0)
WAIT_S = 10.0


def take(consumer, count):
    """The bodies of that many messages, finished."""
    bodies = []
    for _ in range(count):
        message = consumer.get(WAIT_S)
        assert message is not None, bodies
        bodies.append(message.body)
        message.finish()
    return bodies


def channel(broker, topic):
    return topic_stats(broker.http, topic)["channels"]["c"]


def test_publish_and_consume(broker, address, topic):
    with Producer(address) as producer:
        producer.publish(topic, b"one")
        producer.publish_many(topic, [b"two", b"three"])
        producer.publish_later(topic, b"four", delay_s=0.02)
        assert producer.stats().published == 3
    found = []
    with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        for message in consumer:
            assert message.attempts == 1
            assert len(message.id) == 16
            assert message.timestamp_ns > 0
            assert message.nsqd == address
            message.touch()
            message.finish()
            found.append(message.body)
            if len(found) == 4:
                break
        assert consumer.get(timeout_s=0.01) is None
        assert consumer.stats().finished == 4
    assert found == b"one two three four".split()
    eventually(lambda: channel(broker, topic)["in_flight_count"] == 0)


def test_many_sends(broker, address, topic):
    """More than the buffer holds: send waits, nothing is lost, the order stays."""
    bodies = [b"%d" % number for number in range(5000)]
    with Producer(address, buffer_count_max=100) as producer:
        for body in bodies:
            producer.send(topic, body)
        producer.flush()
        assert producer.stats().published == 5000
    with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        assert take(consumer, 5000) == bodies


def test_a_send_leaves_by_itself(address, topic):
    with Producer(address) as producer, Consumer(topic, "c", nsqd=address) as consumer:
        producer.send(topic, b"x")
        assert take(consumer, 1) == [b"x"]


def test_errors(address, topic):
    with Producer(address) as producer:
        with pytest.raises(PublishRefusedError, match="E_BAD_TOPIC"):
            producer.publish("a b", b"x")
        with pytest.raises(PublishRefusedError, match="E_BAD_TOPIC"):
            producer.send("a b", b"x")
        with pytest.raises(TypeError):
            producer.send(topic, "text")
        producer.send(topic, b"x" * (1 << 20) + b"y")
        with pytest.raises((PublishRefusedError, OutcomeUnknownError)):
            producer.flush()
        producer.flush()
        producer.publish(topic, b"x")
    with pytest.raises(ClosedError):
        producer.publish(topic, b"x")
    producer.close()
    with pytest.raises(OptionsError):
        Producer("nowhere")
    with pytest.raises(OptionsError):
        Consumer(topic, "c")
    consumer = Consumer(topic, "c", nsqd=address)
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.get()


def test_refused(address, topic):
    """A consumer without heartbeats is none; the thread that asked is gone afterwards."""
    before = threading.active_count()
    consumer = Consumer(topic, "c", nsqd=address, config=Config(heartbeat_interval_s=-1))
    for _ in range(2):
        with pytest.raises(RefusedError, match="heartbeats disabled"):
            consumer.get()
    assert threading.active_count() == before


def test_a_loop_left_early_gives_back_what_it_had_taken(broker, address, topic):
    with Producer(address) as producer:
        producer.publish_many(topic, [b"%d" % number for number in range(50)])
    with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        for message in consumer:
            message.finish()
            break
        again = {message.body for message in (consumer.get(WAIT_S) for _ in range(49)) if message}
        assert len(again) == 49
    eventually(lambda: channel(broker, topic)["depth"] == 49)


def test_batches(broker, address, topic):
    with Producer(address) as producer:
        producer.publish_many(topic, [b"%d" % number for number in range(150)])
    found = []
    with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        for batch in consumer.batches(max_messages=100, max_wait_s=0.05):
            found += [message.body for message in batch]
            if len(batch) == 100:
                batch.messages[0].finish()
                batch.finish()
            else:
                batch.requeue(0)
                break
        assert sorted(take(consumer, 50)) == sorted(found[100:])
    assert len(found) == 150


def test_arrays(broker, address, topic):
    with Producer(address) as producer:
        producer.publish_many(topic, [b"%d" % number for number in range(100)])
    with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        for batch in consumer.arrays(max_messages=100, max_wait_s=WAIT_S):
            assert batch.body(99) == b"99"
            assert (
                len(batch) == len(batch.timestamps) == len(batch.ids) == len(batch.attempts) == 100
            )
            assert batch.finish(range(90)) == 90
            assert batch.requeue() == 10
            break
    eventually(lambda: channel(broker, topic)["depth"] == 10)


def test_several_threads(address, topic):
    """Publishing from four, consuming with four."""
    found, lock, over = [], threading.Lock(), threading.Event()

    def publish(producer, number):
        for n in range(250):
            (producer.send if n % 10 else producer.publish)(topic, b"%d" % (number * 250 + n))

    def consume(consumer):
        while not over.is_set():
            message = consumer.get(timeout_s=0.05)
            if message is not None:
                message.finish()
                with lock:
                    found.append(int(message.body))
                    if len(found) == 1000:
                        over.set()

    with (
        Producer(address) as producer,
        Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer,
    ):
        threads = [threading.Thread(target=publish, args=(producer, n)) for n in range(4)]
        threads += [threading.Thread(target=consume, args=(consumer,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == list(range(1000))


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_the_first_use_by_several_threads(address, topic, kind):
    """One of them connects, the others wait for it."""
    make = {"producer": Producer, "consumer": lambda a: Consumer(topic, "c", nsqd=a)}[kind]
    for _ in range(10):
        together, failures, connects = threading.Barrier(8), [], []

        def use(thing, together=together, failures=failures, connects=connects):
            together.wait(WAIT_S)
            try:
                connects.append(thing.stats().connects)
            except Exception as error:
                failures.append(error)

        with make(address) as thing:
            threads = [threading.Thread(target=use, args=[thing]) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert failures == []
        assert connects == [1] * 8


def test_messages_that_outlive_their_consumer(broker, address, topic):
    """What is said of them is for nobody: they were handed back."""
    with Producer(address) as producer:
        producer.publish_many(topic, [b"x"] * 10)
    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG)
    message = next(iter(consumer))
    consumer.close()
    message.touch()
    message.finish()
    message.requeue()
    eventually(lambda: channel(broker, topic)["depth"] == 10)
    arrays = Consumer(topic, "c", nsqd=address, config=CONFIG)
    batch = next(arrays.arrays(10, WAIT_S))
    arrays.close()
    with pytest.raises(ClosedError):
        batch.finish()


@pytest.mark.parametrize("make", [Producer, lambda a: Consumer("t", "c", nsqd=a)])
def test_pickling(make):
    thing = make("127.0.0.1:1")
    with pytest.raises(TypeError, match="cannot be pickled; make it where it is used"):
        pickle.dumps(thing)
    thing.close()


def in_child(work):
    """Run it in a fork; whether it went well."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_fork(broker, address, topic):
    """A child that takes over a producer gets connections of its own; the parent's go on."""
    with (
        Producer(address) as producer,
        Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer,
    ):
        producer.publish(topic, b"parent")

        def work():
            producer.publish(topic, b"child")
            producer.send(topic, b"child again")
            producer.flush()
            with pytest.raises(ClosedError, match="made before a fork"):
                consumer.get()
            consumer.close()
            producer.close()

        assert in_child(work)
        producer.publish(topic, b"parent again")
        assert sorted(take(consumer, 4)) == [b"child", b"child again", b"parent", b"parent again"]


PROGRAM = """
import sys
from nsqfast.client.sync import Producer, Consumer
producer = Producer(sys.argv[1])
producer.send(sys.argv[2], b"last words")
consumer = Consumer(sys.argv[2], "c", nsqd=sys.argv[1])
message = consumer.get()
assert message.body == b"last words"
{ending}
"""


@pytest.mark.parametrize(
    ("ending", "status"), [("", 0), ("raise SystemExit(3)", 3), ("raise ValueError('no')", 1)]
)
def test_a_program_that_just_ends(broker, address, topic, ending, status):
    """What was sent has left, and what was not finished is handed back at once."""
    done = run_command(
        sys.executable, "-X", "dev", "-c", PROGRAM.format(ending=ending), address, topic
    )
    assert done.returncode == status, done.stderr
    if status != 1:
        # asyncio's debug mode names what was slow, on a busy machine anything.
        slow = re.compile(r"Executing <.*> took [\d.]+ seconds")
        assert [line for line in done.stderr.splitlines() if not slow.fullmatch(line)] == []
    assert topic_stats(broker.http, topic)["message_count"] == 1
    eventually(lambda: channel(broker, topic)["depth"] == 1)
    eventually(lambda: channel(broker, topic)["in_flight_count"] == 0)
