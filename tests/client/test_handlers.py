"""What ends `run`, and what does not: cancelled tasks, wrong arguments, a second run; how many are handled at once."""

import asyncio
import contextlib
import functools
import logging

import pytest

from nsqfast.client import ClosedError, Config, Consumer, NsqfastError, OptionsError, Producer
from support.fake_nsqd import FakeNsqd
from support.waiting import until
from support.web import topic_stats

CONFIG = Config(max_in_flight=100, default_requeue_delay_s=0, max_backoff_duration_s=0)


async def publish(address, topic, count):
    async with Producer(address) as producer:
        await producer.publish_many(topic, [b"%d" % number for number in range(count)])


async def test_a_handler_that_waits_for_a_cancelled_task(
    loop_factory, broker, address, topic, caplog
):
    """Each message that meets it is requeued; no worker ends, and all messages are handled in the end."""
    handled, met = set(), set()

    async def handler(message):
        if int(message.body) % 4 == 0 and message.body not in met:
            met.add(message.body)
            other = asyncio.create_task(asyncio.Event().wait())
            asyncio.get_running_loop().call_soon(other.cancel)
            await other
        handled.add(message.body)
        if len(handled) == 200:
            consumer.request_stop()

    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG)
    await publish(address, topic, 200)
    await consumer.run(handler, concurrency=8)
    assert consumer.stats().requeued == 50
    await until(lambda: topic_stats(broker.http, topic)["channels"]["c"]["in_flight_count"] == 0)
    assert len(handled) == 200
    failures = [record for record in caplog.records if "the handler failed" in record.message]
    assert len(failures) == 50


@pytest.mark.parametrize("way", ["itself", "elsewhere"])
async def test_a_worker_that_is_cancelled(broker, address, topic, way):
    """run ends with an exception that says so, not as if all were done; what it had is handed back."""

    async def handler(_message):
        if way == "itself":
            asyncio.current_task().cancel()
        else:
            started.set_result(asyncio.current_task())
        await asyncio.Event().wait()

    started = asyncio.get_running_loop().create_future()
    await publish(address, topic, 5)
    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG)
    running = asyncio.create_task(consumer.run(handler, grace_s=0))
    if way == "elsewhere":
        (await started).cancel()
    with pytest.raises(NsqfastError, match=f"{topic}/c: a task that calls the handler was"):
        await running
    await until(lambda: topic_stats(broker.http, topic)["channels"]["c"]["depth"] == 5)


async def test_a_run_that_is_cancelled(address, topic):
    """The handler's CancelledError is its own then, and run's, too."""
    ended = []
    started = asyncio.Event()

    async def handler(_message):
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(True)
            raise

    await publish(address, topic, 1)
    running = asyncio.create_task(
        Consumer(topic, "c", nsqd=address, config=CONFIG).run(handler, grace_s=0)
    )
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == [True]


async def test_callbacks_that_wait_for_a_cancelled_task(address, topic, caplog):
    """giving_up: the message is requeued. choose_nodes: the answer does not count, and the next poll is made."""

    async def cancelled(_):
        other = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(other.cancel)
        await other

    given_up = []

    async def give_up(message):
        given_up.append(message.attempts)
        if len(given_up) == 1:
            await cancelled(message)
        consumer.request_stop()

    def handler(_message):
        raise ValueError

    config = Config(max_attempts=1, default_requeue_delay_s=0, max_backoff_duration_s=0)
    consumer = Consumer(topic, "c", nsqd=address, config=config, giving_up=give_up)
    await publish(address, topic, 1)
    await consumer.run(handler)
    assert given_up == [2, 3]
    assert "it waited for a task that was cancelled" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((None,), "a handler is a function that takes a message, not None"),
        ((lambda: None,), "too many positional arguments"),
        (("text",), "not 'text'"),
        ((print, 0), "concurrency is 0; it is a whole number of at least 1"),
        ((print, -1), "concurrency is -1"),
        ((print, 1.5), "concurrency is 1.5"),
        ((print, True), "concurrency is True"),
        ((print, None), "concurrency is None"),
    ],
)
async def test_wrong_arguments(dead, topic, arguments, error):
    with pytest.raises(OptionsError, match=error):
        await Consumer(topic, "c", nsqd=dead).run(*arguments)


async def test_a_decorator_may_give_more_arguments(address, topic):
    """What counts is how the handler itself is called."""

    def with_database(function):
        @functools.wraps(function)
        async def handler(message):
            await function(message, "database")

        return handler

    @with_database
    async def handler(_message, database):
        assert database == "database"
        consumer.request_stop()

    await publish(address, topic, 1)
    consumer = Consumer(topic, "c", nsqd=address)
    await consumer.run(handler)
    assert consumer.stats().finished == 1


async def test_a_consumer_runs_once(dead, topic):
    consumer = Consumer(topic, "c", nsqd=dead)
    running = asyncio.create_task(consumer.run(print))
    await until(lambda: consumer._was_run)
    with pytest.raises(ClosedError, match="run.. was called before"):
        await consumer.run(print)
    consumer.request_stop()
    await running
    with pytest.raises(ClosedError, match="the consumer has stopped; make a new one"):
        await consumer.run(print)
    for use in (lambda: consumer.take(1), lambda: anext(consumer.batches())):
        with pytest.raises(ClosedError, match="has stopped"):
            await use()
    assert consumer.stats().received == 0


@pytest.mark.parametrize("when", ["before", "while it connects", "before run"])
async def test_a_stop_that_comes_early(topic, when):
    """run, and iteration, end at once; nothing is waited for."""
    silent = asyncio.Event()

    async def script(peer):
        silent.set()
        await peer.read_to_end()

    async with FakeNsqd(script if when != "before" else None) as fake:
        consumer = Consumer(topic, "c", nsqd=fake.address)
        if when == "before":
            consumer.request_stop()
        running = asyncio.create_task(consumer.run(print))
        if when == "while it connects":
            await silent.wait()
            consumer.request_stop()
        elif when == "before run":
            asyncio.get_running_loop().call_soon(consumer.request_stop)
        async with asyncio.timeout(20):
            await running


class Crowd:
    """How many handlers are at work at the same moment, at most; all wait for as many as are `expected`."""

    def __init__(self, consumer_of, until_count, expected):
        self.most = self.now = self.done = 0
        self.until_count = until_count
        self.consumer_of = consumer_of
        self.expected = expected
        self.is_full = asyncio.Event()

    async def __call__(self, _message):
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == self.expected:
            self.is_full.set()
        await self.is_full.wait()
        for _ in range(20):  # one more that may begin does so in these turns
            await asyncio.sleep(0)
        self.now -= 1
        self.done += 1
        if self.done == self.until_count:
            self.consumer_of().request_stop()


@pytest.mark.parametrize(
    ("given", "most", "warns"),
    [({}, 64, False), ({"max_in_flight": 200}, 64, False), ({"max_in_flight": 8}, 8, True)],
)
async def test_as_many_at_a_time_as_asked_for(address, topic, caplog, given, most, warns):
    """Nobody has to know that max_in_flight is 1 if it is not given."""
    crowd = Crowd(lambda: consumer, 256, most)
    consumer = Consumer(topic, "c", nsqd=address, config=Config(**given))

    caplog.set_level(logging.WARNING)
    await publish(address, topic, 256)
    await consumer.run(crowd, concurrency=64)
    assert crowd.most == most
    said = "64 messages at a time are to be handled, but max_in_flight is 8"
    assert (said in caplog.text) is warns


async def test_what_was_set_at_run_time_counts_as_given(address, topic):
    await publish(address, topic, 30)
    async with Consumer(topic, "c", nsqd=address) as consumer:
        consumer.set_max_in_flight(5)
        async for batch in consumer.batches(max_messages=30, max_wait_s=10):
            assert len(batch) == 5
            batch.finish()
            break
        with pytest.raises(OptionsError, match="max_in_flight is -1"):
            consumer.set_max_in_flight(-1)


@pytest.mark.parametrize("count", [1, 3])
async def test_a_stop_takes_nothing_more(broker, address, topic, count):
    """As soon as it is asked for, while handlers are still at work: what comes now is somebody else's."""
    started, release = asyncio.Event(), asyncio.Event()

    async def handler(_message):
        started.set()
        await release.wait()

    await publish(address, topic, 1)
    consumer = Consumer(topic, "c", nsqd=address)
    running = asyncio.create_task(consumer.run(handler, concurrency=count))
    await started.wait()
    consumer.request_stop()
    await until(lambda: consumer.stats().connections[address].rdy == 0)
    await publish(address, topic, 3)
    async with Consumer(topic, "c", nsqd=address, config=CONFIG) as other:
        for _ in range(3):
            (await anext(aiter(other))).finish()
    release.set()
    await running
    assert consumer.stats().finished == 1


async def test_one_that_is_asked_to_stop_while_a_loop_iterates(broker, address, topic):
    """What was prefetched is handed back at once; what the loop holds can still be finished."""
    await publish(address, topic, 10)
    async with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        async for message in consumer:
            await until(lambda: consumer.stats().in_flight == 10)
            consumer.request_stop()
            await until(lambda: channel_of(broker, topic)["in_flight_count"] == 1)
            assert message.finish()
        assert consumer.stats().finished == 1
    await until(lambda: channel_of(broker, topic)["depth"] == 9)


def channel_of(broker, topic):
    return topic_stats(broker.http, topic)["channels"]["c"]


async def test_every_nsqd_may_deliver_if_nobody_says_otherwise(topic):
    """With max_in_flight 1 over three of them, RDY would go round every ten seconds."""

    def connections(consumer):
        return consumer.stats().connections.values()

    rdy = {}

    def script(number):
        async def talk(peer):
            await peer.subscribe()
            async for name, parameters, _ in peer.commands():
                if name == "CLS":
                    peer.respond(b"CLOSE_WAIT")
                rdy[number] = parameters

        return talk

    async with contextlib.AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(FakeNsqd(script(n))) for n in range(3)]
        addresses = [fake.address for fake in fakes]
        async with Consumer(topic, "c", nsqd=addresses):
            await until(lambda: rdy == {0: ["1"], 1: ["1"], 2: ["1"]})
        rdy.clear()
        config = Config(max_in_flight=1)
        async with Consumer(topic, "c", nsqd=addresses, config=config) as consumer:
            await until(lambda: all(one.is_connected for one in connections(consumer)))
            assert sum(one.rdy for one in connections(consumer)) == 1


@pytest.mark.parametrize("way", ["batches", "arrays"])
async def test_more_than_nsqd_delivers_at_a_time(address, topic, way):
    """A batch does not wait for what cannot come: nsqd's --max-rdy-count is 2500, and what is held takes its room."""
    async with Producer(address) as producer:
        for _ in range(3):
            await producer.publish_many(topic, [b"x"] * 2500)
    async with Consumer(topic, "c", nsqd=address) as consumer:
        sizes, held = [], []
        async for batch in getattr(consumer, way)(max_messages=10_000, max_wait_s=20):
            sizes.append(len(batch))
            if len(sizes) == 2:
                held.append(batch)  # and the next one can have nothing before that is answered
                asyncio.get_running_loop().call_soon(batch.finish)
            else:
                batch.finish()
            if sum(sizes) == 7500:
                break
        assert sizes == [2500] * 3
