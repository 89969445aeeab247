"""The synchronous facade where threads, signals and its end meet: nobody waits for ever, and nothing gets lost."""

import asyncio
import gc
import logging
import signal
import sys
import threading
import warnings
from pathlib import Path

import pytest

from nsqfast.client import ClosedError, Config, RefusedError
from nsqfast.client import lifetime as lifetime_module
from nsqfast.client.sync import Batch, Consumer, Producer
from nsqfast.client.sync.loop_thread import LoopThread
from nsqfast.client.sync.message import Message
from support.fake_nsqd import FakeNsqd
from support.programs import Program
from support.waiting import eventually

WAIT_S = 10.0


class Caller(threading.Thread):
    """Calls a function; `outcome` is what it returned or raised."""

    def __init__(self, function):
        super().__init__(daemon=True)
        self.function = function
        self.outcome = None
        self.start()

    def run(self):
        try:
            self.outcome = self.function()
        except BaseException as error:
            self.outcome = error

    def ends(self):
        self.join(WAIT_S)
        return not self.is_alive()


# -- calls and the end of the loop thread ----------------------------------------------------------------------


class Watched:
    """The loop of an loop_thread; `called` is set when somebody else's call stands in its queue."""

    def __init__(self, loop_thread, before_close=lambda: None):
        self.loop = loop_thread._loop
        self.before_close = before_close
        self.called = threading.Event()
        loop_thread._loop = self

    def __getattr__(self, name):
        return getattr(self.loop, name)

    def call_soon_threadsafe(self, *arguments):
        handle = self.loop.call_soon_threadsafe(*arguments)
        if isinstance(threading.current_thread(), Caller):
            self.called.set()
        return handle

    def close(self):
        self.before_close()
        self.loop.close()


def test_a_call_while_the_loop_ends():
    """Its tasks are cancelled by then; one more that begins is, too."""
    loop_thread = LoopThread("test")
    begun = threading.Event()
    callers = []

    async def hold_up():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            loop.called.clear()
            callers.append(Caller(lambda: loop_thread.call(asyncio.Event().wait())))
            assert loop.called.wait(WAIT_S)

    loop = Watched(loop_thread)
    callers.append(Caller(lambda: loop_thread.call(hold_up())))
    assert begun.wait(WAIT_S)
    loop_thread.stop()
    assert len(callers) == 2
    for caller in callers:
        assert caller.ends()
        assert isinstance(caller.outcome, ClosedError)


def test_a_call_behind_the_last_turn():
    """The loop takes it, and never comes to it."""
    loop_thread = LoopThread("test")
    callers = []

    def call():
        callers.append(Caller(lambda: loop_thread.call(asyncio.sleep(0))))
        assert loop.called.wait(WAIT_S)

    loop = Watched(loop_thread, before_close=call)
    loop_thread.stop()
    (caller,) = callers
    assert caller.ends()
    assert isinstance(caller.outcome, ClosedError)


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_closed_by_a_signal_handler_before_it_connects(address, topic, kind, monkeypatch):
    """The handler interrupts the first use at its earliest: that does not connect, and nothing is left."""
    thing = Producer(address) if kind == "producer" else Consumer(topic, "c", nsqd=address)
    threads = threading.active_count()
    monkeypatch.setattr(thing, "_before_start", thing.close)
    with pytest.raises(ClosedError, match="connections were closed|is closed"):
        thing.stats()
    assert threading.active_count() == threads


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_closed_while_its_thread_starts(address, topic, kind, monkeypatch):
    """Even earlier: the loop_thread is being made, and close cannot know of it."""
    thing = Producer(address) if kind == "producer" else Consumer(topic, "c", nsqd=address)
    threads = threading.active_count()
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        if thread.name.startswith("nsqfast"):
            thing.close()

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(ClosedError, match=f"the {kind} is closed"):
        thing._ready()
    assert threading.active_count() == threads


# -- what many threads do at a time -----------------------------------------------------------------------------------


def test_a_list_of_what_is_open_while_others_begin():
    """Each start of a consumer looks through it, in the thread of its own loop."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    is_over = threading.Event()

    class Thing(lifetime_module.Resource):
        kind = "thing"

    def begin():
        async def main():
            while not is_over.is_set():
                for _ in range(100):
                    thing = Thing(None)
                    thing._begin()
                    thing._finish()

        asyncio.run(main())

    kept = [Thing(None) for _ in range(100)]

    async def keep():
        for thing in kept:
            thing._begin()

    asyncio.run(keep())
    beginning = [Caller(begin) for _ in range(2)]
    try:
        for _ in range(2000):
            assert set(kept) <= set(lifetime_module.open_resources())
    finally:
        is_over.set()
        sys.setswitchinterval(interval_s)
        for thing in kept:
            thing._finish()
    assert all(caller.ends() and caller.outcome is None for caller in beginning)
    assert lifetime_module.open_resources() == []


def test_nothing_overtakes_a_send_that_leaves(address, topic):
    """Also at the moment at which the loop's thread has taken it and nsqd's connection has not got it yet."""
    with Producer(address) as producer:
        producer.publish(topic, b"x")
        may_overtake = []
        send = producer._producer.send

        def watched(*arguments):
            may_overtake.append(producer._may_go_directly(b"x"))
            return send(*arguments)

        producer._producer.send = watched
        producer.send(topic, b"x")
        producer.flush()
        assert may_overtake == [False]
        assert producer._may_go_directly(b"x")


def test_a_collection_while_a_log_handler_holds_its_lock(address, topic):
    """It may come in the middle of anything: what it finds is said elsewhere."""
    lock = threading.Lock()
    lines = []

    class Locked(logging.Handler):
        def emit(self, record):
            with lock:
                lines.append(record.getMessage())

    logger = logging.getLogger("nsqfast.test.locked")
    logger.addHandler(Locked())
    logger.propagate = False
    things = [Consumer(topic, "c", nsqd=address, logger=logger)]
    things[0].stats()

    def collect():
        with lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            things.clear()
            gc.collect()
        return [str(one.message) for one in caught if one.category is ResourceWarning]

    caller = Caller(collect)
    assert caller.ends()
    assert caller.outcome == [f"unclosed consumer {topic}/c"]
    eventually(
        lambda: lines == [f"{topic}/c: the consumer was left without close(); it is closed now"]
    )


# -- handlers in threads ----------------------------------------------------------------------------------------------


def test_handlers_that_do_not_end(address, topic, caplog):
    """At a stop they have their time, and run its end; close hands back what they hold."""
    release, started = threading.Event(), threading.Barrier(3)

    def handler(_message):
        started.wait(WAIT_S)
        release.wait(WAIT_S * 3)

    with Producer(address) as producer:
        producer.publish_many(topic, [b"1", b"2"])
    with Consumer(topic, "c", nsqd=address) as consumer:
        running = Caller(lambda: consumer.run(handler, concurrency=2, grace_s=0.05))
        started.wait(WAIT_S)
        consumer.request_stop()
        assert running.ends()
        assert running.outcome is None
    assert f"{topic}/c: handlers that have not ended in 0.05 s: 2" in caplog.text
    with Consumer(topic, "c", nsqd=address, config=Config(max_in_flight=2)) as consumer:
        taken = [consumer.get(WAIT_S) for _ in range(2)]
        assert {message.body for message in taken} == {b"1", b"2"}
    release.set()


# -- what was asked for before ----------------------------------------------------------------------------------------


async def test_a_pause_outlasts_a_first_use_that_fails(topic):
    """The consumer is made anew for the second one."""

    def use(address):
        consumer = Consumer(topic, "c", nsqd=address, config=Config(max_in_flight=5))
        consumer.pause()
        with pytest.raises(RefusedError, match="not yet"):
            consumer.get(0.01)
        assert consumer.is_paused
        with consumer:
            assert consumer.is_paused
            assert consumer.get(0.01) is None

    answers = [b"E_BAD_TOPIC not yet", b"OK"]
    rdy = []

    async def script(peer):
        await peer.greet()
        await peer.expect("SUB")
        answer = answers.pop(0)
        if answer != b"OK":
            peer.refuse(answer.decode())
            await peer.read_to_end()
            return
        peer.respond(answer)
        rdy.extend(await peer.part())

    async with FakeNsqd(script) as fake:
        await asyncio.to_thread(use, fake.address)
    assert answers == []
    assert [said for said in rdy if said[0] == "RDY"] == []


def test_a_batch_that_fails_in_part():
    """The rest fails, whichever of its messages was finished before."""
    said = []

    class Told:
        def __init__(self, name):
            self.name = name

        def requeue(self, delay_s, *, backoff, reason):
            said.append((self.name, backoff))

        is_answerable = True

        def finish(self):
            said.append(self.name)

    class Here:
        def post(self, action, *arguments):
            action(*arguments)

    batch = Batch([Message(Told(name), Here()) for name in "abc"])
    batch.messages[0].finish()
    batch.requeue(1.0)
    assert said == ["a", ("b", True), ("c", True)]


# -- signals ----------------------------------------------------------------------------------------------------------

SIGNAL_ELSEWHERE = """
import signal, sys
from nsqfast.client.sync import Consumer

address, topic, concurrency = sys.argv[1:]
consumer = Consumer(topic, "c", nsqd=address)
signal.signal(signal.SIGTERM, lambda *_: consumer.request_stop())
with consumer:
    # From here on another thread gets the signal, and this one is not woken by it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print("begun", flush=True)
    consumer.run(print, concurrency=int(concurrency))
"""


def stands_still(pid):
    """Return once the main thread of a process has waited in one and the same call for a while."""
    call = Path(f"/proc/{pid}/task/{pid}/syscall")
    seen = []

    def is_waiting():
        seen.append(call.read_text(encoding="ascii"))
        return len(seen) >= 20 and len(set(seen[-20:])) == 1 and seen[-1] != "running\n"

    eventually(is_waiting)


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_signal_that_does_not_wake_the_main_thread(address, topic, concurrency):
    """Whichever thread the system hands it to, its handler runs, though the main thread waits for messages."""
    words = [sys.executable, "-c", SIGNAL_ELSEWHERE, address, topic, str(concurrency)]
    with Program(*words) as program:
        program.read_until("begun")
        stands_still(program.process.pid)
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(WAIT_S) == 0
