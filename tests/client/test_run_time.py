"""What changes while a producer or consumer is at work: nsqd and nsqlookupd that come and go, pauses, a ping; and where
neither can be used: in another event loop, in a forked child.
"""

import asyncio
import os
import threading

import pytest
import uvloop

from nsqfast.client import (
    ClosedError,
    Config,
    Consumer,
    NotConnectedError,
    OptionsError,
    Producer,
    RefusedError,
)
from support.fake_lookup import Lookupd
from support.fake_nsqd import FakeNsqd
from support.server import start_nsqd
from support.waiting import until
from support.web import topic_stats

CONFIG = Config(max_in_flight=100, default_requeue_delay_s=0, max_backoff_duration_s=0)


def place(server):
    return "{}:{}".format(*server.tcp)


@pytest.fixture
def two(implementation, tmp_path_factory):
    """Two brokers of the same kind."""
    servers = [start_nsqd(implementation, tmp_path_factory.mktemp("n")) for _ in range(2)]
    yield servers
    for server in servers:
        server.kill()


async def publish(address, topic, count, prefix=b""):
    async with Producer(address) as producer:
        await producer.publish_many(topic, [prefix + b"%d" % number for number in range(count)])


def channel(server, topic):
    return topic_stats(server.http, topic)["channels"]["c"]


# -- producers --------------------------------------------------------------------------------------------------------


async def test_nsqd_of_a_producer(two, topic):
    first, second = map(place, two)
    async with Producer(first) as producer:
        await producer.publish(topic, b"x")
        await producer.add_nsqd(second)
        await producer.add_nsqd(second)  # it is there
        assert producer.stats().connections == {first: True, second: True}
        for _ in range(10):
            await producer.publish(topic, b"x")
        assert topic_stats(two[1].http, topic)["message_count"] == 5
        await producer.drop_nsqd(first)
        for _ in range(10):
            await producer.publish(topic, b"x")
        assert producer.stats().connections == {second: True}
        assert topic_stats(two[0].http, topic)["message_count"] == 6
        with pytest.raises(OptionsError, match="is none of this producer's nsqd"):
            await producer.drop_nsqd(first)
        with pytest.raises(OptionsError, match="the port is missing"):
            await producer.add_nsqd("nowhere")
        await until(lambda: topic_stats(two[0].http, topic) is not None)


async def test_one_that_refuses_is_not_added(address, topic):
    async def script(peer):
        await peer.reader.readexactly(4)
        await peer.expect("IDENTIFY")
        peer.refuse("E_INVALID no")

    async with FakeNsqd(script) as fake:
        async with Producer(address) as producer:
            with pytest.raises(RefusedError, match="E_INVALID"):
                await producer.add_nsqd(fake.address)
            assert list(producer.stats().connections) == [address]
        async with Consumer(topic, "c", nsqd=address) as consumer:
            with pytest.raises(RefusedError, match="E_INVALID"):
                await consumer.add_nsqd(fake.address)
            assert list(consumer.stats().connections) == [address]


async def test_one_that_comes_later_is_added(implementation, tmp_path, address, topic):
    """The first attempt fails; it is tried on."""
    server = start_nsqd(implementation, tmp_path)
    later = place(server)
    server.kill()
    async with Producer(address) as producer:
        await producer.add_nsqd(later)
        assert producer.stats().connections == {address: True, later: False}
        server = await asyncio.to_thread(
            start_nsqd, implementation, tmp_path, f"--tcp-address={later}"
        )
        try:
            await until(lambda: producer.stats().connections[later])
        finally:
            server.kill()


async def test_ping(implementation, tmp_path):
    server = start_nsqd(implementation, tmp_path)
    address = place(server)
    try:
        async with Producer(address) as producer:
            await producer.ping()
            assert producer.is_connected
            server.kill()
            await until(lambda: not producer.is_connected)
            with pytest.raises(NotConnectedError, match=f"no connection in 0.05 s: {address}"):
                await producer.ping(timeout_s=0.05)
            waiting = asyncio.create_task(producer.ping(timeout_s=30))
            server = await asyncio.to_thread(
                start_nsqd, implementation, tmp_path, f"--tcp-address={address}"
            )
            await waiting
    finally:
        server.kill()


# -- consumers --------------------------------------------------------------------------------------------------------


async def test_nsqd_of_a_consumer(two, topic):
    """What was in flight at a dropped one can still be answered; the rest is handed back to it."""
    first, second = map(place, two)
    await publish(first, topic, 10, b"first")
    await publish(second, topic, 10, b"second")
    async with Consumer(topic, "c", nsqd=first, config=Config(max_in_flight=4)) as consumer:
        held = [await anext(aiter(consumer)) for _ in range(4)]
        await consumer.add_nsqd(second)
        assert set(consumer.stats().connections) == {first, second}
        assert held[0].finish()
        dropping = asyncio.create_task(consumer.drop_nsqd(first, grace_s=30))
        await until(lambda: consumer.stats().connections[first].rdy == 0)
        assert held[1].finish()
        assert held[2].finish()
        assert not dropping.done()
        assert held[3].finish()
        await dropping
        assert set(consumer.stats().connections) == {second}
        for _ in range(10):
            message = await anext(aiter(consumer))
            assert message.body.startswith(b"second")
            message.finish()
        await until(lambda: channel(two[0], topic)["client_count"] == 0)
        assert channel(two[0], topic)["depth"] == 6
        assert channel(two[0], topic)["in_flight_count"] == 0


async def test_a_drop_that_does_not_wait(two, topic):
    first, second = map(place, two)
    await publish(first, topic, 3)
    where = [first, second]
    async with Consumer(topic, "c", nsqd=where, config=Config(max_in_flight=10)) as consumer:
        message = await anext(aiter(consumer))
        await consumer.drop_nsqd(first, grace_s=0)
        assert not message.finish()
        await until(lambda: channel(two[0], topic)["depth"] == 3)
        with pytest.raises(OptionsError, match="is none of this consumer's nsqd"):
            await consumer.drop_nsqd(first)


async def test_nsqlookupd_of_a_consumer(two, topic):
    first, second = map(place, two)
    async with Lookupd(first) as one, Lookupd(second) as other:
        config = Config(lookupd_poll_interval="20ms", max_in_flight=10)
        async with Consumer(topic, "c", nsqd=first, config=config) as consumer:
            await consumer.add_nsqlookupd(other.address)
            await until(lambda: set(consumer.stats().connections) == {first, second})
            await until(lambda: consumer.stats().connections[second].is_connected)
            with pytest.raises(OptionsError, match="was found through nsqlookupd"):
                await consumer.drop_nsqd(second)
            await consumer.add_nsqlookupd(one.address)
            await until(lambda: len(one.requests) > 1)
            await consumer.drop_nsqlookupd(other.address)
            with pytest.raises(OptionsError, match="is none of this consumer's nsqlookupd"):
                await consumer.drop_nsqlookupd(other.address)
            asked, polls = len(other.requests), len(one.requests)
            await until(lambda: len(one.requests) > polls + 3)
            assert len(other.requests) <= asked + 1  # one was on its way
            assert consumer.stats().connections[second].is_connected


async def test_pause(broker, address, topic):
    """Nothing is delivered meanwhile, whatever else changes; afterwards all is as it was."""
    async with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:

        def rdy():
            return consumer.stats().connections[address].rdy

        assert not consumer.is_paused
        consumer.pause()
        consumer.pause()
        assert consumer.is_paused
        assert rdy() == 0
        await publish(address, topic, 10)
        consumer.set_max_in_flight(7)
        await until(lambda: channel(broker, topic)["depth"] == 10)
        assert consumer.stats().received == 0
        consumer.resume()
        assert rdy() == 7
        for _ in range(10):
            (await anext(aiter(consumer))).finish()
        consumer.resume()
        assert rdy() == 7


async def test_a_consumer_that_begins_paused(broker, address, topic):
    await publish(address, topic, 3)
    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG)
    consumer.pause()
    consumer.resume()
    consumer.pause()
    async with consumer:
        assert consumer.is_paused
        assert consumer.stats().connections[address].rdy == 0
        async with Producer(address) as producer:
            await producer.publish(topic, b"later")
        assert consumer.stats().received == 0
        consumer.resume()
        for _ in range(4):
            (await anext(aiter(consumer))).finish()


async def test_a_pause_in_backoff(address, topic):
    """The end of a backoff's pause delivers nothing to a consumer that is paused."""
    await publish(address, topic, 3)
    config = Config(max_in_flight=3, backoff_multiplier="10ms", default_requeue_delay_s=0)
    async with Consumer(topic, "c", nsqd=address, config=config, backoff="nsq") as consumer:
        messages = [await anext(aiter(consumer)) for _ in range(3)]
        messages[0].requeue()
        assert consumer.stats().backoff_level == 1
        consumer.pause()
        for message in messages[1:]:
            message.requeue(0, backoff=False)
        await until(lambda: not consumer._flow.backoff.is_paused)
        assert consumer.stats().connections[address].rdy == 0
        consumer.resume()
        (await anext(aiter(consumer))).finish()


# -- where they cannot be used ----------------------------------------------------------------------------------------

ELSEWHERE = "was started in another event loop; make one in each event loop"
ENDED = "was started in an event loop that has ended; make one in each event loop"


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_second_event_loop(address, topic, factory):
    """Both are alive; asyncio's own words for it would be about futures."""
    first, second = factory(), factory()
    try:
        producer = Producer(address)
        consumer = Consumer(topic, "c", nsqd=address)
        first.run_until_complete(producer.start())
        first.run_until_complete(consumer.start())

        async def in_turn():
            for use in (
                lambda: producer.publish(topic, b"x"),
                lambda: producer.publish_many(topic, [b"x"]),
                lambda: producer.publish_later(topic, b"x", 1.0),
                producer.flush,
                producer.drain,
                producer.ping,
                producer.close,
                lambda: consumer.run(print),
                lambda: consumer.take(1),
                lambda: anext(aiter(consumer)),
                lambda: anext(consumer.batches()),
                lambda: anext(consumer.arrays()),
                consumer.stop,
            ):
                with pytest.raises(ClosedError, match=ELSEWHERE):
                    await use()
            for thing in (producer, consumer):
                with pytest.raises(ClosedError, match="was started before"):
                    await thing.start()

        second.run_until_complete(in_turn())
        first.run_until_complete(consumer.stop())
        first.run_until_complete(producer.close())
    finally:
        second.close()
        first.close()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_an_event_loop_that_has_ended(address, topic):
    async def start():
        producer, consumer = Producer(address), Consumer(topic, "c", nsqd=address)
        await producer.start()
        await consumer.start()
        return producer, consumer

    producer, consumer = asyncio.run(start())
    for use in (
        lambda: producer.send(topic, b"x"),
        lambda: asyncio.run(producer.publish(topic, b"x")),
        lambda: aiter(consumer),
        lambda: asyncio.run(consumer.take(1)),
        consumer.pause,
    ):
        with pytest.raises(ClosedError, match=ENDED):
            use()


async def test_another_thread(address, topic):
    """`send` from a thread without the loop would break it without a trace."""
    async with Producer(address) as producer:
        errors = []

        def use():
            try:
                producer.send(topic, b"x")
            except ClosedError as error:
                errors.append(str(error))

        thread = threading.Thread(target=use)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert errors == [f"the producer {ELSEWHERE}"]
        await producer.publish(topic, b"x")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
async def test_a_forked_child(address, topic):
    """The child is told; the parent goes on."""

    def child(producer, consumer):
        told = 0
        for use in (
            lambda: producer.send(topic, b"x"),
            producer.stats,
            consumer.__aiter__,
            consumer.pause,
        ):
            try:
                use()
            except ClosedError as error:
                assert "was made before a fork" in str(error)
                assert "make one in the child" in str(error)
                told += 1
        return 0 if told == 4 else 1

    async with (
        Producer(address) as producer,
        Consumer(topic, "c", nsqd=address) as consumer,
    ):
        pid = os.fork()
        if pid == 0:
            os._exit(child(producer, consumer))
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await producer.publish(topic, b"x")
        (await anext(aiter(consumer))).finish()


@pytest.mark.parametrize("kind", ["producer", "consumer"])
async def test_two_that_add_the_same(topic, kind):
    """Whoever gives up waiting does not take the attempt from the other one, and a refusal is told to both."""
    connected, refuse = asyncio.Event(), asyncio.Event()

    async def script(peer):
        assert await peer.reader.readexactly(4) == b"  V2"
        await peer.expect("IDENTIFY")
        connected.set()
        await refuse.wait()
        peer.refuse("E_BAD_BODY not you")
        await peer.read_to_end()

    async def work(peer):
        await (peer.greet() if kind == "producer" else peer.subscribe())
        await peer.read_to_end()

    async with FakeNsqd(work) as first, FakeNsqd(script) as other:
        make = {"producer": Producer, "consumer": lambda a: Consumer(topic, "c", nsqd=a)}[kind]
        async with make(first.address) as thing:
            adding = [asyncio.create_task(thing.add_nsqd(other.address)) for _ in range(3)]
            await connected.wait()
            adding[0].cancel()
            await asyncio.wait([adding[0]])
            assert not adding[1].done()
            refuse.set()
            for one in adding[1:]:
                with pytest.raises(RefusedError, match="not you"):
                    await one
            assert list(thing.stats().connections) == [first.address]
            if kind == "consumer":
                thing._flow.subscriptions[0].connection.fail(
                    ConnectionError("nobody answers CLS here")
                )


async def test_a_drop_behind_a_request_to_stop(two, topic):
    """CLS was sent already, and nsqd hangs up at a second one."""
    first, second = map(place, two)
    await publish(first, topic, 1)
    async with Consumer(topic, "c", nsqd=[first, second], config=CONFIG) as consumer:
        message = await anext(aiter(consumer))
        consumer.request_stop()
        await until(
            lambda: all(
                subscription.connection.is_leaving for subscription in consumer._flow.subscriptions
            )
        )
        dropping = asyncio.create_task(consumer.drop_nsqd(first))
        await until(lambda: consumer._flow._idle_waiters != [])
        await until(lambda: channel(two[0], topic)["in_flight_count"] == 1)
        assert message.finish()
        await dropping
    await until(lambda: channel(two[0], topic)["client_count"] == 0)
    assert channel(two[0], topic)["depth"] == 0
    assert channel(two[0], topic)["requeue_count"] == 0


async def test_an_nsqlookupd_that_is_added_during_a_poll(address, topic):
    """The others are being asked at that moment: it is next, and does not wait for the interval."""
    async with Lookupd() as slow, Lookupd(address) as added:
        slow.release = asyncio.Event()
        config = Config(lookupd_poll_interval="5m", lookupd_poll_jitter=0)
        async with Consumer(topic, "c", nsqlookupd=slow.address, config=config) as consumer:
            assert len(slow.requests) == 1
            await consumer.add_nsqlookupd(added.address)
            slow.release.set()
            await until(lambda: len(consumer.stats().connections) == 1)


async def test_an_answer_to_sub_that_is_none(topic, caplog):
    """No connection, and not said to be one."""
    caplog.set_level("INFO")

    async def script(peer):
        await peer.greet()
        await peer.expect("SUB")
        peer.respond(b"PERHAPS")
        await peer.read_to_end()

    async with FakeNsqd(script) as fake, Consumer(topic, "c", nsqd=fake.address) as consumer:
        assert consumer.stats().connects == 0
    assert "no connection: b'PERHAPS' instead of OK to SUB" in caplog.text
    assert "connected" not in caplog.text


async def test_a_batch_that_fails_in_part(address, topic):
    """Whichever of its messages was finished before, the rest is a failure to the backoff."""
    await publish(address, topic, 3)
    config = Config(max_in_flight=3, max_backoff_duration="1m", output_buffer_size=-1)
    async with Consumer(topic, "c", nsqd=address, config=config, backoff="nsq") as consumer:
        async for batch in consumer.batches(3, max_wait_s=10):
            assert len(batch) == 3
            assert batch.messages[0].finish()
            assert batch.requeue(0) == 2
            break
        assert consumer.stats().backoff_level == 1
