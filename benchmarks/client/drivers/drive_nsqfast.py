"""nsqfast.client, with uvloop as in an application that needs speed, or with asyncio's loop if NSQFAST_LOOP says so."""

from __future__ import annotations

import asyncio
import os

import uvloop
from common import BATCH, CHANNEL, IN_FLIGHT, OUTSTANDING, Load, Watch, arguments, publish_many

from nsqfast.client import BufferFullError, Config, Consumer, Producer, sync


async def publish(load: Load) -> None:
    """Run one of a producer's loads."""
    async with Producer(load.address) as producer:
        watch = Watch(load)
        if load.scenario == "pub_one":
            for _ in range(load.count):
                await producer.publish(load.topic, load.body)
        elif load.scenario == "pub_100":
            await publish_many(
                lambda: producer.publish(load.topic, load.body), load.count, OUTSTANDING
            )
        elif load.scenario == "pub_piped":
            await pipe(producer, load)
        else:
            bodies = [load.body] * BATCH
            for _ in range(load.count // BATCH):
                await producer.publish_many(load.topic, bodies)
        watch.stop()


async def pipe(producer: Producer, load: Load) -> None:
    """As fast as possible."""
    for _ in range(load.count):
        try:
            producer.send(load.topic, load.body)
        except BufferFullError:
            await producer.drain()
            producer.send(load.topic, load.body)
    await producer.flush()


async def consume(load: Load) -> None:
    """Consume one message after the other, finishing each."""
    watch = Watch(load)
    config = Config(max_in_flight=IN_FLIGHT)
    async with Consumer(load.topic, CHANNEL, nsqd=load.address, config=config) as consumer:
        left = load.count
        async for message in consumer:
            message.finish()
            left -= 1
            if not left:
                break
        watch.stop()


async def consume_arrays(load: Load) -> None:
    """Take whatever has come, at once."""
    import nsqfast.client.batch  # noqa: F401 - loads numpy and its threads before the watch runs

    watch = Watch(load)
    config = Config(max_in_flight=IN_FLIGHT)
    async with Consumer(load.topic, CHANNEL, nsqd=load.address, config=config) as consumer:
        left = load.count
        async for batch in consumer.arrays(max_wait_s=0.0):
            left -= batch.finish()
            if not left:
                break
        watch.stop()


async def round_trip(load: Load) -> None:
    """Publish and consume in one program."""
    config = Config(max_in_flight=IN_FLIGHT)
    async with (
        Producer(load.address) as producer,
        Consumer(load.topic, CHANNEL, nsqd=load.address, config=config) as consumer,
    ):
        watch = Watch(load)
        sending = asyncio.create_task(
            publish_many(lambda: producer.publish(load.topic, load.body), load.count, OUTSTANDING)
        )
        left = load.count
        async for message in consumer:
            message.finish()
            left -= 1
            if not left:
                break
        await sending
        watch.stop()


def without_a_loop(load: Load) -> None:
    """The same one at a time, in a program without an event loop."""
    if load.scenario == "pub_one_sync":
        with sync.Producer(load.address) as producer:
            watch = Watch(load)
            for _ in range(load.count):
                producer.publish(load.topic, load.body)
            watch.stop()
        return
    watch = Watch(load)
    config = Config(max_in_flight=IN_FLIGHT)
    with sync.Consumer(load.topic, CHANNEL, nsqd=load.address, config=config) as consumer:
        left = load.count
        for message in consumer:
            message.finish()
            left -= 1
            if not left:
                break
        watch.stop()


def main() -> None:
    """Run the load of the command line."""
    load = arguments()
    if load.scenario.endswith("_sync"):
        without_a_loop(load)
        return
    works = {"consume": consume, "consume_arrays": consume_arrays, "round_trip": round_trip}
    work = works.get(load.scenario, publish)(load)
    if os.environ.get("NSQFAST_LOOP") == "asyncio":
        asyncio.run(work)
    else:
        uvloop.run(work)


main()
