"""Handlers that take too long: a loop that stands still, a message whose time is over, one that nobody finishes."""

import asyncio
import gc
import logging
import os
import threading
import time

import pytest

import nsqfast.client.sync
from nsqfast.client import Config, Consumer, Producer
from nsqfast.client import loop_watch as loop_watch_module
from support.fake_nsqd import FakeNsqd
from support.waiting import until

SECOND = Config(msg_timeout_s=1, max_in_flight=5)


async def publish(address, topic, *bodies):
    async with Producer(address) as producer:
        await producer.publish_many(topic, bodies)


def said(caplog, text):
    return [
        record.getMessage()
        for record in caplog.records
        if text in record.getMessage() and record.levelno == logging.WARNING
    ]


def block_until(condition, seconds_max=60):
    """Hold up the loop, as a handler does that forgets to await."""
    end_s = time.monotonic() + seconds_max
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.01)


@pytest.mark.parametrize("way", ["plain", "coroutine", "through the sync client"])
async def test_a_handler_that_blocks_the_loop_is_named(loop_factory, address, topic, caplog, way):
    """Its line, while it still blocks, and once for each time."""

    def is_said():
        return bool(said(caplog, "the event loop has stood still"))

    def handler(_message):
        block_until(is_said)  # this line
        consumer.request_stop()

    async def handle(message):
        await asyncio.sleep(0)
        handler(message)

    def handle_by_sync(_message):
        with nsqfast.client.sync.Consumer(topic, "other", nsqd=address) as other:
            while not is_said():
                other.get(timeout_s=0.05)
        consumer.request_stop()

    handlers = {"plain": handler, "coroutine": handle, "through the sync client": handle_by_sync}
    await publish(address, topic, b"x")
    consumer = Consumer(topic, "c", nsqd=address, config=SECOND)
    await consumer.run(handlers[way])
    (line,) = said(caplog, "the event loop has stood still")
    assert line.startswith(f"{topic}/c: the event loop has stood still for ")
    assert f".{handlers[way].__name__} ({__file__}:" in line
    assert "asyncio.to_thread" in line
    await until(lambda: "nsqfast loop watch" not in [one.name for one in threading.enumerate()])


async def test_another_task_that_blocks_the_loop_is_named(address, topic, caplog):
    consumer = Consumer(topic, "c", nsqd=address, config=SECOND)
    running = asyncio.create_task(consumer.run(print))
    await until(lambda: consumer._was_run)

    async def compute():
        block_until(lambda: said(caplog, "the event loop has stood still"))

    await asyncio.create_task(compute())
    consumer.request_stop()
    await running
    (line,) = said(caplog, "the event loop has stood still")
    assert f"compute ({__file__}:" in line


async def test_a_loop_within_its_limit_is_not_named(caplog):
    """Nor is one that was named already, until it turns again."""
    loop = asyncio.get_running_loop()
    log = logging.getLogger("nsqfast.client")
    limits_s = [1000.0]
    watched = loop_watch_module.Watched(loop, lambda: limits_s[0], log, "t/c")
    began_s = time.monotonic()
    limits_s[0] = 1.0  # a broker that connects meanwhile, and gives less time
    watched.look(began_s + 900)
    assert not said(caplog, "stood still")
    limits_s[0] = 1000.0
    watched.look(began_s + 1100)
    watched.look(began_s + 1200)
    assert len(said(caplog, "stood still")) == 1
    watched.end()
    watched._turn()
    watched.look(time.monotonic() + 1100)
    assert len(said(caplog, "stood still")) == 2
    watched.end()


def test_a_child_process_begins_anew():
    """A fork has no thread of its parent's."""
    before = loop_watch_module._watcher
    child = os.fork()
    if child == 0:
        os._exit(loop_watch_module._watcher is before)
    assert os.waitpid(child, 0)[1] == 0


async def test_a_message_beyond_its_time_is_named_once(address, topic, caplog):
    """With what to do; and what comes too late does not count as finished."""
    released = asyncio.Event()

    async def handler(_message):
        await released.wait()

    await publish(address, topic, b"x")
    consumer = Consumer(topic, "c", nsqd=address, config=SECOND)
    await consumer.start()
    running = asyncio.create_task(consumer.run(handler))
    await until(lambda: said(caplog, "was not answered in 1 s"))
    await until(lambda: consumer.stats().received == 2)  # nsqd delivered it again
    released.set()
    await until(lambda: said(caplog, "an answer came too late"))
    await until(lambda: consumer.stats().finished == 1)
    consumer.request_stop()
    await running
    (line,) = said(caplog, "was not answered")
    assert "answer sooner, raise msg_timeout, call touch(), or use auto_touch=True" in line


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        ("E_FIN_FAILED FIN", "finish"),
        ("E_REQ_FAILED REQ", "requeue"),
        ("E_TOUCH_FAILED TOUCH", "touch"),
    ],
)
async def test_late_answers_are_no_answers(topic, error, answer):
    """Whichever it was, the count goes back."""

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        peer.deliver(1)
        async for name, _, _ in peer.commands():
            if error.endswith(name):
                peer.refuse(f"{error} 0000000000000001 failed ID not in flight")
            elif name == "CLS":
                peer.respond(b"CLOSE_WAIT")

    counts = {"finish": "finished", "requeue": "requeued", "touch": "touched"}
    async with (
        FakeNsqd(script) as fake,
        Consumer(
            topic, "c", nsqd=fake.address, config=Config(max_backoff_duration_s=0)
        ) as consumer,
    ):
        message = await anext(aiter(consumer))
        assert getattr(message, answer)()
        assert getattr(consumer.stats(), counts[answer]) == 1
        await until(lambda: getattr(consumer.stats(), counts[answer]) == 0)


@pytest.mark.parametrize("kind", ["asyncio", "threads"])
async def test_messages_that_nobody_finishes(address, topic, caplog, kind):
    """A loop over a consumer that forgets to finish: said once, with the number so far."""
    await publish(address, topic, b"1", b"2", b"3")
    if kind == "asyncio":
        async with Consumer(topic, "c", nsqd=address, config=SECOND) as consumer:
            for _ in range(3):
                await anext(aiter(consumer))
            gc.collect()
            await until(lambda: said(caplog, "let go without finish() or requeue()"))
    else:

        def work():
            with nsqfast.client.sync.Consumer(topic, "c", nsqd=address, config=SECOND) as consumer:
                assert len([consumer.get() for _ in range(3)]) == 3
                block_until(lambda: said(caplog, "let go without finish() or requeue()"))

        await asyncio.to_thread(work)
    lines = said(caplog, "let go without finish() or requeue()")
    assert lines == [
        f"{topic}/c: messages that the program let go without finish() or requeue(): 3; nsqd delivers them again"
    ]
