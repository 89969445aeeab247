"""Messages as numpy columns: what is in them, and how they are answered."""

import asyncio
import time

import numpy as np
import pytest

from nsqfast.client import ClosedError, Config, Consumer, Producer
from support.fake_nsqd import FakeNsqd
from support.server import start_nsqd
from support.waiting import until
from support.web import topic_stats

CONFIG = Config(max_in_flight=500)


def channel(broker, topic):
    return topic_stats(broker.http, topic)["channels"]["c"]


async def publish(address, topic, bodies):
    async with Producer(address) as producer:
        await producer.publish_many(topic, bodies)


async def test_columns(loop_factory, broker, address, topic):
    bodies = [b"%d" % number * (number % 7 + 1) for number in range(1000)]
    started_ns = time.time_ns()
    await publish(address, topic, bodies)
    found, sizes, ids = [], [], set()
    async with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        async for batch in consumer.arrays(max_messages=300, max_wait_s=0.05):
            count = len(batch)
            assert batch.offsets.dtype == batch.timestamps.dtype == np.int64
            assert batch.attempts.dtype == np.uint16
            assert batch.ids.dtype == "S16"
            assert batch.offsets.shape == (count + 1,)
            assert batch.timestamps.shape == batch.attempts.shape == batch.ids.shape == (count,)
            assert batch.offsets[0] == 0
            assert batch.offsets[-1] == len(batch.bodies)
            assert (batch.attempts == 1).all()
            assert (batch.timestamps >= started_ns).all()
            assert (batch.timestamps <= time.time_ns()).all()
            found += [batch.body(row) for row in range(count)]
            ids |= set(batch.ids.tolist())
            sizes.append(count)
            assert not batch.is_answered
            assert batch.touch() == count
            assert batch.finish() == count
            assert batch.is_answered
            assert batch.finish() == batch.requeue() == batch.touch() == 0
            if len(found) == 1000:
                break
        assert consumer.stats().finished == 1000
        assert consumer.stats().in_flight == 0
    assert found == bodies
    assert len(ids) == 1000
    assert max(sizes) <= 300
    await until(lambda: channel(broker, topic)["in_flight_count"] == 0)
    assert channel(broker, topic)["depth"] == channel(broker, topic)["requeue_count"] == 0


async def test_rows(broker, address, topic):
    """Some finished, some requeued, some left to be handed back."""
    await publish(address, topic, [b"%d" % number for number in range(100)])
    async with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        async for batch in consumer.arrays(max_messages=100, max_wait_s=3600):
            assert batch.finish([1, 1, 3]) == 2
            assert batch.finish([]) == batch.requeue([1, 3]) == 0
            assert not batch.is_answered
            assert batch.finish(np.flatnonzero(batch.attempts == 1)[:10]) == 8
            assert batch.requeue(range(50, 60), delay_s=60) == 10
            for rows in ([100], [-1]):
                with pytest.raises(IndexError):
                    batch.finish(rows)
            break
        assert consumer.stats().in_flight == 80
    await until(lambda: channel(broker, topic)["depth"] == 80)
    assert channel(broker, topic)["deferred_count"] == 10


async def test_rows_of_several_brokers(implementation, tmp_path_factory, topic):
    servers = [start_nsqd(implementation, tmp_path_factory.mktemp("n")) for _ in range(2)]
    addresses = ["{}:{}".format(*server.tcp) for server in servers]
    try:
        for number, address in enumerate(addresses):
            await publish(address, topic, [b"%d" % number] * 200)
        async with Consumer(topic, "c", nsqd=addresses, config=CONFIG) as consumer:
            async for batch in consumer.arrays(max_messages=400, max_wait_s=3600):
                assert sorted(batch.body(row) for row in range(400)) == [b"0"] * 200 + [b"1"] * 200
                assert sorted(batch.nsqd) == sorted(addresses)
                sources = [batch.nsqd[source] for source in batch.sources]
                assert sources == [addresses[int(batch.body(row))] for row in range(400)]
                zeros = [row for row in range(400) if batch.body(row) == b"0"]
                assert batch.finish(zeros) == 200
                break
        await until(lambda: [channel(s, topic)["depth"] for s in servers] == [0, 200])
    finally:
        for server in servers:
            server.kill()


async def test_messages_that_came_before(address, topic):
    """What waited as single messages becomes rows; single messages are not to be had any more."""
    await publish(address, topic, [b"%d" % number for number in range(20)])
    async with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        (await anext(aiter(consumer))).finish()
        await until(lambda: consumer.stats().waiting == 19)
        async for batch in consumer.arrays(max_wait_s=0.01):
            assert [batch.body(row) for row in range(19)] == [b"%d" % n for n in range(1, 20)]
            assert batch.finish() == 19
            break
        assert consumer.stats().in_flight == 0
        with pytest.raises(ClosedError, match="gives arrays by now"):
            await anext(aiter(consumer))


async def test_a_lost_connection(implementation, tmp_path, topic):
    server = start_nsqd(implementation, tmp_path)
    address = "{}:{}".format(*server.tcp)
    try:
        await publish(address, topic, [b"x"] * 10)
        async with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
            async for batch in consumer.arrays(max_wait_s=0.1):
                server.kill()
                await until(lambda: not consumer.stats().connections[address].is_connected)
                assert batch.finish() == 0
                break
    finally:
        server.kill()


async def test_touched_automatically(address, topic):
    await publish(address, topic, [b"x"] * 10)
    config = Config(max_in_flight=10, msg_timeout="1s")
    async with Consumer(topic, "c", nsqd=address, config=config, auto_touch=True) as consumer:
        async for batch in consumer.arrays(max_messages=10, max_wait_s=3600):
            await until(lambda: consumer.stats().touched >= 40)
            assert batch.finish() == 10
            await asyncio.sleep(0)
            break
        assert consumer.stats().received == 10


async def test_what_is_answered_is_let_go(address, topic):
    """A consumer that takes many small batches at a time does not look through them for each new one."""
    await publish(address, topic, [b"%d" % number for number in range(50)])
    async with Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer:
        kept = []
        async for batch in consumer.arrays(max_messages=1, max_wait_s=0):
            kept.append(batch)
            if len(kept) == 50:
                break
        assert consumer._batches == set(kept)
        for batch in kept[:49]:
            assert batch.finish() == 1
        assert consumer._batches == {kept[49]}
        assert kept[49].requeue([0], delay_s=60) == 1
        assert consumer._batches == set()


async def test_backoff(broker, address, topic):
    """Rows that are requeued with backoff are one failure, and a finish afterwards is a success."""
    config = Config(max_in_flight=50, backoff_multiplier_s=0.02, default_requeue_delay_s=0)
    await publish(address, topic, [b"%d" % number for number in range(50)])
    levels, finished = [], 0
    async with Consumer(topic, "c", nsqd=address, config=config) as consumer:
        async for batch in consumer.arrays(max_messages=50, max_wait_s=0.2):
            if not levels:
                assert batch.requeue(delay_s=None, backoff=True) == 50
            else:
                finished += batch.finish()
            levels.append(consumer.stats().backoff_level)
            if finished == 50:
                break
        assert levels[0] == 1
        assert levels[-1] == 0
        assert len(levels) < 50


async def test_default_requeue_delay(topic):
    """It goes by the attempts of each row."""
    told = []

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        for number, attempts in enumerate([1, 3, 1, 20]):
            peer.deliver(number, attempts=attempts)
        while len(told) < 4:
            name, words, _ = await peer.command()
            if name == "REQ":
                told.append(words)
        await peer.part()

    config = Config(
        max_in_flight=4, default_requeue_delay_s=2, max_requeue_delay_s=10, max_attempts=0
    )
    async with (
        FakeNsqd(script) as nsqd,
        Consumer(topic, "c", nsqd=nsqd.address, config=config) as consumer,
    ):
        async for batch in consumer.arrays(max_messages=4, max_wait_s=3600):
            assert batch.requeue(delay_s=None) == 4
            break
        await until(lambda: len(told) == 4)
    assert sorted(told) == [
        [f"{number:016x}", delay] for number, delay in enumerate(["2000", "6000", "2000", "10000"])
    ]
