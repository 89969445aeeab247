"""asyncnsq."""

from __future__ import annotations

import asyncio

import uvloop
from asyncnsq import create_reader, create_writer
from common import BATCH, CHANNEL, IN_FLIGHT, OUTSTANDING, Load, Watch, arguments, publish_many


async def publish(load: Load) -> None:
    """Run one of a producer's loads."""
    writer = await create_writer(host=load.host, port=load.port)
    watch = Watch(load)
    if load.scenario == "pub_one":
        for _ in range(load.count):
            await writer.pub(load.topic, load.body)
    elif load.scenario == "pub_100":
        await publish_many(lambda: writer.pub(load.topic, load.body), load.count, OUTSTANDING)
    else:
        for _ in range(load.count // BATCH):
            await writer.mpub(load.topic, *[load.body] * BATCH)
    watch.stop()


async def consume(load: Load) -> None:
    """Consume one message after the other; a writer beside it for the round trip."""
    watch = Watch(load)
    reader = await create_reader(nsqd_tcp_addresses=[load.address], max_in_flight=IN_FLIGHT)
    await reader.subscribe(load.topic, CHANNEL)
    sending = None
    if load.scenario == "round_trip":
        writer = await create_writer(host=load.host, port=load.port)
        sending = asyncio.create_task(
            publish_many(lambda: writer.pub(load.topic, load.body), load.count, OUTSTANDING)
        )
    left = load.count
    async for message in reader.messages():
        await message.fin()
        left -= 1
        if not left:
            break
    if sending is not None:
        await sending
    watch.stop()


def main() -> None:
    """Run the load of the command line."""
    load = arguments()
    uvloop.run((consume if load.scenario in {"consume", "round_trip"} else publish)(load))


main()
