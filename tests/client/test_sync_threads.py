"""The synchronous facade and what a program does around it: signals, callbacks, threads of handlers, objects that
nobody closes, patched threads.
"""

import gc
import inspect
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from functools import partial

import pytest

from nsqfast import client as asynchronous
from nsqfast.client import ClosedError, Config, NotConnectedError, OptionsError
from nsqfast.client import sync as sync_module
from nsqfast.client.sync import Consumer, Producer
from support.commands import run_command
from support.waiting import eventually
from support.web import topic_stats

CONFIG = Config(max_in_flight=100, default_requeue_delay_s=0, max_backoff_duration_s=0)
WAIT_S = 20.0


def publish(address, topic, count):
    with Producer(address) as producer:
        producer.publish_many(topic, [b"%d" % number for number in range(count)])


def channel(broker, topic):
    return topic_stats(broker.http, topic)["channels"]["c"]


# -- signals ----------------------------------------------------------------------------------------------------------

STOPPED_WHILE_CONNECTING = """
import os, signal, socket, sys, threading
from nsqfast.client.sync import Consumer

listener = socket.create_server(("127.0.0.1", 0))  # takes the connection and says nothing
consumer = Consumer("t", "c", nsqd="127.0.0.1:%d" % listener.getsockname()[1])
signal.signal(signal.SIGTERM, lambda *_: consumer.{action}())

def tell():
    connection, _ = listener.accept()
    connection.recv(4)
    os.kill(os.getpid(), signal.SIGTERM)
    connection.recv(1000000)
    listener.accept()

threading.Thread(target=tell, daemon=True).start()
try:
    {use}
except Exception as error:
    print(type(error).__name__)
print("ended")
"""


@pytest.mark.parametrize(
    ("action", "use", "printed"),
    [
        ("request_stop", "consumer.run(print)", "ended\n"),
        ("request_stop", "for message in consumer: pass", "ended\n"),
        ("request_stop", "assert consumer.get() is None", "ended\n"),
        ("close", "consumer.run(print)", "ClosedError\nended\n"),
    ],
)
def test_a_signal_while_it_connects(action, use, printed):
    """The handler runs in the thread that is in the middle of connecting, holding what that holds."""
    program = STOPPED_WHILE_CONNECTING.format(action=action, use=use)
    done = run_command(sys.executable, "-X", "faulthandler", "-c", program)
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr


STOPPED_AT_ANY_TIME = """
import os, random, signal, sys, threading, time
from nsqfast.client import Config
from nsqfast.client.sync import Consumer

address, topic, seed = sys.argv[1:]
dice = random.Random(int(seed))
signal.signal(signal.SIGUSR1, lambda *_: current.request_stop())
for number in range(20):
    current = Consumer(topic, "c", nsqd=address, config=Config(max_in_flight=10))

    def tell():
        time.sleep(dice.random() * 0.03)  # anywhere between its making and the first messages
        os.kill(os.getpid(), signal.SIGUSR1)

    threading.Thread(target=tell, daemon=True).start()
    with current:
        for message in current:
            message.requeue(0, backoff=False)
print("ended")
"""


@pytest.mark.slow
def test_signals_at_any_time(address, topic):
    publish(address, topic, 10)
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    done = run_command(
        sys.executable, "-X", "faulthandler", "-c", STOPPED_AT_ANY_TIME, address, topic, str(seed)
    )
    assert (done.stdout, done.returncode) == ("ended\n", 0), done.stderr


def test_a_stop_before_the_first_use(address, topic):
    consumer = Consumer(topic, "c", nsqd=address)
    consumer.request_stop()
    assert list(consumer) == []
    consumer.close()
    consumer.request_stop()


# -- callbacks --------------------------------------------------------------------------------------------------------

ONE_ATTEMPT = Config(max_attempts=1, default_requeue_delay_s=0, max_backoff_duration_s=0)


def fail(_message):
    raise ValueError


def test_giving_up_may_ask_the_consumer(address, topic):
    """It runs where nothing that it calls can wait for itself."""
    found = []

    def give_up(message):
        found.append((message.body, message.attempts, consumer.stats().given_up, repr(message)))
        consumer.set_max_in_flight(50)
        with Producer(address) as producer:
            producer.publish(f"{topic}-dead", message.body)
        consumer.request_stop()

    publish(address, topic, 1)
    with Consumer(topic, "c", nsqd=address, config=ONE_ATTEMPT, giving_up=give_up) as consumer:
        consumer.run(fail)
        eventually(lambda: consumer.stats().finished == 1)
    ((body, attempts, given_up, text),) = found
    assert (body, attempts, given_up) == (b"0", 2, 1)
    assert text.startswith("<Message ")
    assert text.endswith(" attempts=2 body=1 bytes>")


@pytest.mark.parametrize("way", ["raises", "returns a coroutine"])
def test_giving_up_that_fails_requeues(address, topic, way):
    attempts = []

    def give_up(message):
        attempts.append(message.attempts)
        if len(attempts) == 1:
            if way == "raises":
                raise OSError("down")
            return Coroutines().method(message)
        return consumer.request_stop()

    publish(address, topic, 1)
    with Consumer(topic, "c", nsqd=address, config=ONE_ATTEMPT, giving_up=give_up) as consumer:
        consumer.run(fail)
    assert attempts == [2, 3]


def test_choose_nodes_may_ask_the_consumer_while_it_connects(broker, address, topic):
    """The thread that connects waits for the choice meanwhile."""
    from support.server import start_nsqlookupd

    lookupd = start_nsqlookupd("nsqfast")
    found = []

    def choose(listed):
        found.append(consumer.stats().connects)
        return [*listed, address]

    try:
        publish(address, topic, 1)
        consumer = Consumer(
            topic, "c", nsqlookupd="{}:{}".format(*lookupd.http), choose_nodes=choose
        )
        with consumer:
            assert consumer.get(WAIT_S).body == b"0"
        assert found[0] == 0
    finally:
        lookupd.kill()


def test_a_log_handler_that_calls_back(address, topic):
    """It runs in the thread that would have to answer: told so, instead of waiting for ever."""
    errors = []

    class Calling(logging.Handler):
        def emit(self, record):
            try:
                consumer.stats()
            except Exception as error:
                errors.append(str(error))

    logger = logging.getLogger("nsqfast.test.calling")
    logger.setLevel(logging.INFO)
    logger.addHandler(Calling())
    logger.propagate = False
    consumer = Consumer(topic, "c", nsqd=address, logger=logger)
    with consumer:
        eventually(lambda: bool(errors))
    assert "called in the thread that carries out all calls" in errors[0]


# -- handlers in threads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 8])
def test_run(broker, address, topic, concurrency):
    """As many at a time as asked for, max_in_flight not given; failures come again."""
    barrier = threading.Barrier(concurrency)
    lock = threading.Lock()
    seen, threads = {}, set()

    def handler(message):
        barrier.wait(WAIT_S)
        with lock:
            threads.add(threading.current_thread())
            seen[message.body] = seen.get(message.body, 0) + 1
            is_last = len(seen) == 80
        if message.body == b"7" and message.attempts == 1:
            raise ValueError("not now")
        if is_last:
            consumer.request_stop()
            barrier.abort()

    publish(address, topic, 80)
    config = Config(default_requeue_delay_s=0, max_backoff_duration_s=0)
    with Consumer(topic, "c", nsqd=address, config=config) as consumer:
        consumer.run(handler, concurrency=concurrency)
        with pytest.raises(ClosedError, match="run.. was called before"):
            consumer.run(handler)
    assert len(seen) == 80
    assert len(threads) == concurrency
    assert all(not thread.name.startswith("nsqfast handler") for thread in threading.enumerate())


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_handler_that_ends_the_program(address, topic, concurrency):
    """SystemExit comes out of run, from a thread as well."""

    def handler(_message):
        raise SystemExit(4)

    publish(address, topic, 3)
    with (
        Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer,
        pytest.raises(SystemExit, match="4"),
    ):
        consumer.run(handler, concurrency=concurrency)


class Coroutines:
    async def method(self, message):
        """Not reached."""

    async def __call__(self, message):
        """Not reached."""


@pytest.mark.parametrize(
    "handler",
    [Coroutines().method, Coroutines(), partial(Coroutines.method, None)],
    ids=["method", "object", "partial"],
)
def test_a_coroutine_function_is_refused(dead, topic, handler):
    """A message would be finished without it."""
    with pytest.raises(OptionsError, match="write `def`"):
        Consumer(topic, "c", nsqd=dead, giving_up=handler)
    with (
        Consumer(topic, "c", nsqd=dead) as consumer,
        pytest.raises(OptionsError, match="write `def`"),
    ):
        consumer.run(handler)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_handler_that_returns_a_coroutine(broker, address, topic, concurrency):
    """The run ends with the reason, and nothing is finished: each message is given back once, at the end."""
    publish(address, topic, 5)
    with (
        Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer,
        pytest.raises(OptionsError, match="runs no coroutines"),
    ):
        consumer.run(lambda message: Coroutines().method(message), concurrency)
    eventually(lambda: channel(broker, topic)["in_flight_count"] == 0)
    left = channel(broker, topic)
    assert (left["depth"], left["deferred_count"], left["requeue_count"]) == (5, 0, 5)


def test_pause_and_what_may_be_in_flight(address, topic):
    with Consumer(topic, "c", nsqd=address, config=Config(max_in_flight=2)) as consumer:

        def rdy():
            return consumer.stats().connections[address].rdy

        assert (consumer.is_paused, consumer.is_starved, rdy()) == (False, False, 2)
        consumer.pause()
        assert (consumer.is_paused, rdy()) == (True, 0)
        publish(address, topic, 3)
        assert consumer.get(timeout_s=0.05) is None
        consumer.set_max_in_flight(3)
        assert rdy() == 0
        consumer.resume()
        assert (consumer.is_paused, rdy()) == (False, 3)
        taken = [consumer.get(WAIT_S) for _ in range(3)]
        assert {message.body for message in taken} == {b"0", b"1", b"2"}
        assert consumer.is_starved


def test_a_stop_takes_nothing_more(address, topic):
    """As soon as it is asked for, while handlers are still at work."""
    started, release = threading.Event(), threading.Event()

    def handler(_message):
        started.set()
        release.wait(WAIT_S)

    publish(address, topic, 1)
    with Consumer(topic, "c", nsqd=address) as consumer:
        running = threading.Thread(target=consumer.run, args=(handler,), kwargs={"concurrency": 4})
        running.start()
        assert started.wait(WAIT_S)
        consumer.request_stop()
        eventually(lambda: consumer.stats().connections[address].rdy == 0)
        publish(address, topic, 3)
        with Consumer(topic, "c", nsqd=address, config=CONFIG) as other:
            for _ in range(3):
                other.get(WAIT_S).finish()
        release.set()
        running.join()
        assert consumer.stats().finished == 1


def test_figures_after_the_end(address, topic):
    with Producer(address) as producer:
        producer.publish(topic, b"x")
    assert producer.stats().published == 1
    with Consumer(topic, "c", nsqd=address) as consumer:
        consumer.get(WAIT_S).finish()
    assert consumer.stats().finished == 1
    with pytest.raises(ClosedError, match="the consumer is closed"):
        consumer.get()


def test_a_peer_that_says_nothing(topic):
    """The first use waits for it no longer than a start does, and then for what it is given."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
        with Producer(address, timeout_s=0.2, close_timeout_s=0) as producer:
            began_s = time.monotonic()
            with pytest.raises(NotConnectedError):
                producer.publish(topic, b"x")
            assert time.monotonic() - began_s < 8  # a handshake has 10 s


def test_what_the_module_has():
    """The names of the other one, so that nobody has to know which is where."""
    own = {"Batch", "Consumer", "Message", "Producer", "ArrayBatch"}
    assert set(asynchronous.__all__) - own <= set(sync_module.__all__)
    assert asynchronous.ArrayBatch is not sync_module.ArrayBatch
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        asynchronous.nothing  # noqa: B018 - asking for it is what raises


# -- what is left behind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_one_that_nobody_closes(broker, address, topic, kind, caplog):
    """A ResourceWarning, a line in the log (the warning is hidden by default), and the connection is gone."""
    publish(address, topic, 1)
    if kind == "producer":
        thing = Producer(address)
        thing.publish(topic, b"x")
    else:
        thing = Consumer(topic, "c", nsqd=address)
        assert thing.get(WAIT_S).body == b"0"
    threads = threading.active_count()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del thing
        gc.collect()
        eventually(lambda: threading.active_count() < threads)
    (warning,) = [one for one in caught if issubclass(one.category, ResourceWarning)]
    name = address if kind == "producer" else f"{topic}/c"
    assert str(warning.message) == f"unclosed {kind} {name}"
    assert f"{name}: the {kind} was left without close(); it is closed now" in caplog.text
    if kind == "consumer":
        eventually(lambda: channel(broker, topic)["client_count"] == 0)
        eventually(lambda: channel(broker, topic)["depth"] == 1)


def test_one_that_was_never_used_is_nobodys_business(topic):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for make in (lambda: Producer("127.0.0.1:1"), lambda: Consumer(topic, "c", nsqd="h:1")):
            make()
            gc.collect()
    assert [one for one in caught if issubclass(one.category, ResourceWarning)] == []


NOTEBOOK = """
import sys
sys.ps1 = "In : "  # as IPython does
from nsqfast.client.sync import Consumer
address, topic = sys.argv[1:]

def cell():
    global consumer
    consumer = Consumer(topic, "c", nsqd=address)
    for message in consumer:
        raise KeyboardInterrupt

try:
    cell()
except KeyboardInterrupt as error:
    last = error  # sys.last_value: its frames hold the first consumer
try:
    cell()
except KeyboardInterrupt:
    pass
consumer.close()
"""


def test_a_notebook_cell_that_is_run_again(broker, address, topic):
    """The first consumer is still there and gets messages: said, when the second one starts."""
    publish(address, topic, 3)
    done = run_command(sys.executable, "-c", NOTEBOOK, address, topic)
    assert done.returncode == 0, done.stderr
    said = "another consumer of this program is still open and gets a part of the messages"
    assert f"{topic}/c: {said}" in done.stderr or "was left without close()" in done.stderr
    eventually(lambda: channel(broker, topic)["client_count"] == 0)


# -- patched threads --------------------------------------------------------------------------------------------------

PATCHED = """
import {library}
{patch}
import sys
from nsqfast.client.sync import Consumer, Producer
for make in (lambda: Producer(sys.argv[1]), lambda: Consumer("t", "c", nsqd=sys.argv[1])):
    try:
        make()
    except Exception as error:
        print(type(error).__name__, error)
"""
HALF_PATCHED = """
import {library}
{patch}
import sys
from nsqfast.client.sync import Consumer, Producer
with Producer(sys.argv[1]) as producer:
    producer.publish(sys.argv[2], b"x")
with Consumer(sys.argv[2], "c", nsqd=sys.argv[1]) as consumer:
    message = consumer.get()
    message.finish()
    print(message.body)
"""
GEVENT = ("gevent.monkey", "gevent.monkey.patch_all({})")
EVENTLET = ("eventlet", "eventlet.monkey_patch({})")


def run_patched(program, library, argument, *arguments):
    if not __import__("importlib.util", fromlist=["util"]).find_spec(library[0].partition(".")[0]):
        pytest.skip(f"{library[0]} is not installed")
    program = program.format(library=library[0], patch=library[1].format(argument))
    return run_command(sys.executable, "-W", "ignore", "-c", program, *arguments)


@pytest.mark.parametrize("library", [GEVENT, EVENTLET], ids=lambda one: one[0])
def test_threads_that_are_none(library, address):
    done = run_patched(PATCHED, library, "", address)
    name = library[0].partition(".")[0]
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith(f"OptionsError {name} has replaced threads")
        assert "monkey" in line
        assert "thread=False" in line


@pytest.mark.parametrize("library", [GEVENT, EVENTLET], ids=lambda one: one[0])
def test_the_cure_that_is_named_works(library, address, topic):
    done = run_patched(HALF_PATCHED, library, "thread=False", address, topic)
    assert (done.stdout, done.returncode) == ("b'x'\n", 0), done.stderr


# -- at par -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_the_same_names_and_keywords(name):
    """What the asynchronous one has, the synchronous one has; nothing hides behind **options."""
    ours = {"Producer": Producer, "Consumer": Consumer}[name]
    theirs = getattr(asynchronous, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    own_way = {
        "Producer": {"start", "drain"},
        "Consumer": {"start", "stop", "take_waiting", "prepare_run"},
    }[name]
    internal = {"open", "kind", "name"} | {name for name in dir(theirs) if name.startswith("on_")}
    wanted = {
        name
        for name, member in vars(theirs).items()
        if not name.startswith("_")
        and name not in internal
        and "Used " not in (member.__doc__ or "")
    }
    assert wanted - own_way <= set(dir(ours))
    for member in (wanted - own_way) & vars(theirs).keys():
        one, other = vars(theirs)[member], inspect.getattr_static(ours, member)
        if callable(one):
            assert list(inspect.signature(one).parameters) == list(
                inspect.signature(other).parameters
            ), member


def test_interrupted(address, topic):
    """Ctrl-C ends a run over threads, quietly, and waits for what they are at."""
    publish(address, topic, 4)
    ended = []
    is_told = threading.Event()

    def handler(_message):
        if not ended:
            ended.append("begun")
            os.kill(os.getpid(), signal.SIGINT)
        assert is_told.wait(WAIT_S)
        ended.append("done")

    with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        request_stop = consumer.request_stop

        def note_stop():
            request_stop()
            is_told.set()

        consumer.request_stop = note_stop
        consumer.run(handler, concurrency=2)
    assert "done" in ended
