"""What thousands of connections leave behind: nothing."""

import asyncio
import contextlib
import gc
import os
import tracemalloc

import pytest

from nsqfast.client import Config, Consumer, NotConnectedError, Producer, UndeliveredError
from nsqfast.client.backoff import ReconnectDelays
from support.fake_nsqd import FakeNsqd
from support.waiting import until

ROUNDS = 10_000


def sockets():
    return len(os.listdir("/proc/self/fd"))


async def measure(fake, thing, rounds):
    """(sockets, tasks, bytes) after so many connections, with one of them open."""
    wanted = fake.connections + rounds
    await until(lambda: fake.connections >= wanted, seconds_max=250)
    gc.collect()
    return sockets(), len(asyncio.all_tasks()), tracemalloc.get_traced_memory()[0]


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_reconnects(run, monkeypatch, caplog, role):
    monkeypatch.setattr(ReconnectDelays, "next_s", lambda _: 0.0)
    caplog.set_level("CRITICAL", "nsqfast.client")

    is_over = asyncio.Event()

    async def hang_up(peer):
        """In the middle of work; so does the client at the end, wherever the last connection is then."""
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await work_a_little(peer)
        except AssertionError as error:
            if not (is_over.is_set() and "CLS" in str(error)):
                raise

    async def work_a_little(peer):
        if role == "consumer":
            await peer.subscribe()
            await peer.expect("RDY")
            for number in range(5):
                peer.deliver(number)
            await peer.writer.drain()
        else:
            await peer.greet()
            await peer.expect("PUB")
            peer.respond(b"OK")
            await peer.expect("PUB")

    async def work(thing):
        if role == "consumer":
            async for message in thing:
                message.finish()
        else:
            while True:
                await asyncio.gather(*[thing.publish("t", b"x" * 100) for _ in range(3)])

    async def main():
        async with FakeNsqd(hang_up) as fake:
            thing = (
                Consumer("t", "c", nsqd=fake.address, config=Config(max_in_flight=10))
                if role == "consumer"
                else Producer(fake.address, retries=1_000_000, timeout_s=3600)
            )
            await thing.start()
            working = asyncio.create_task(work(thing))
            await measure(fake, thing, ROUNDS // 20)
            before = await measure(fake, thing, ROUNDS // 20)
            after = await measure(fake, thing, ROUNDS - ROUNDS // 10)
            is_over.set()
            working.cancel()
            await (thing.stop() if role == "consumer" else thing._end(0.0))
            await asyncio.gather(working, return_exceptions=True)
        return before, after

    tracemalloc.start()
    try:
        before, after = run(main())
    finally:
        tracemalloc.stop()
    # A connection more or less is on its way at the moment of a look.
    assert abs(after[0] - before[0]) <= 4
    assert abs(after[1] - before[1]) <= 4
    assert after[2] - before[2] < 200_000, (before, after)


async def test_messages_and_futures_go(address, topic):
    """What a consumer and a producer gave out is not kept by them."""
    async with (
        Producer(address) as producer,
        Consumer(topic, "c", nsqd=address, config=Config(max_in_flight=100)) as consumer,
    ):

        async def round_trip(count):
            for _ in range(count):
                producer.send(topic, b"x" * 1000)
            for _ in range(count):
                (await anext(aiter(consumer))).finish()
            await producer.flush()

        await round_trip(500)
        gc.collect()
        tracemalloc.start()
        await round_trip(100)
        first, _ = tracemalloc.get_traced_memory()
        for _ in range(10):
            await round_trip(500)
        gc.collect()
        last, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert last - first < 100_000


def futures():
    """Those that somebody keeps, whether or not somebody still waits for them."""
    gc.collect()
    found = [one for one in gc.get_objects() if isinstance(one, asyncio.Future)]
    return sum(not isinstance(one, asyncio.Task) for one in found)


@pytest.mark.parametrize("way", ["take", "anext", "batches", "arrays"])
async def test_waiting_in_vain(address, topic, way):
    """Whoever asks again and again, and gets less than asked for, leaves nothing behind that each read looks at."""

    async def ask(consumer, count):
        for _ in range(count):
            if way == "take":
                assert await consumer.take(1, timeout_s=0.0005) == []
            else:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.0005):
                        await anext(aiter(consumer))

    async def gather(consumer, producer, count):
        found = getattr(consumer, way)(100, max_wait_s=0.0005)
        for _ in range(count):
            await producer.publish(topic, b"x")
            (await anext(found)).finish()

    async def wait(consumer, producer, count):
        if way in {"take", "anext"}:
            await ask(consumer, count)
        else:
            await gather(consumer, producer, count)

    # Go's nsqd would hold each message back for 250 ms.
    config = Config(max_in_flight=200, output_buffer_size=-1)
    async with (
        Producer(address) as producer,
        Consumer(topic, "c", nsqd=address, config=config) as consumer,
    ):
        await wait(consumer, producer, 10)
        before = futures()
        await wait(consumer, producer, 100)
        assert futures() - before < 10


@pytest.mark.parametrize("way", ["ping", "drain"])
async def test_waiting_in_vain_for_nsqd(dead, way):
    async def wait(producer, count):
        for _ in range(count):
            if way == "ping":
                with pytest.raises(NotConnectedError):
                    await producer.ping(timeout_s=0.0005)
            else:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.0005):
                        await producer.drain()

    producer = Producer(dead, buffer_count_max=2, close_timeout_s=0)
    await producer.start()
    producer.send("t", b"x")
    producer.send("t", b"x")
    assert not producer._dispatcher.has_room()
    await wait(producer, 10)
    waiting = futures()
    await wait(producer, 100)
    assert futures() - waiting < 10
    with pytest.raises(UndeliveredError):
        await producer.close()
