"""A producer or a consumer for test_cluster, in a process and a namespace of its own: a line for each promise it hears.

    worker.py publish TOPIC NSQD,NSQD,...         prints "ok N" when message N was acknowledged
    worker.py consume TOPIC CHANNEL LOOKUPD,...   prints "got N" when message N was finished

Ends in order when its standard input does.
"""

import asyncio
import sys

from nsqfast.client import Config, Consumer, Producer

PAUSE_S = 0.005


async def end_of_input() -> None:
    await asyncio.to_thread(sys.stdin.read)


def say(*words: object) -> None:
    print(*words, flush=True)


async def publish(topic: str, addresses: str) -> None:
    ended = asyncio.create_task(end_of_input())
    async with Producer(*addresses.split(","), timeout_s=90, retries=1000) as producer:
        number = 0
        waiting = set()
        while not ended.done():
            task = asyncio.create_task(publish_one(producer, topic, number))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            number += 1
            await asyncio.sleep(PAUSE_S)
        await asyncio.gather(*waiting)
    say("sent", number)


async def publish_one(producer: Producer, topic: str, number: int) -> None:
    await producer.publish(topic, b"%d" % number)
    say("ok", number)


async def consume(topic: str, channel: str, lookupds: str) -> None:
    config = Config(
        max_in_flight=50, lookupd_poll_interval="2s", heartbeat_interval="1s", max_attempts=0
    )
    consumer = Consumer(topic, channel, nsqlookupd=lookupds.split(","), config=config)

    async def stop_at_end() -> None:
        await end_of_input()
        consumer.request_stop()

    async with consumer:
        ended = asyncio.create_task(stop_at_end())
        async for message in consumer:
            number = int(message.body)
            if message.finish():
                say("got", number)
        await ended


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    asyncio.run({"publish": publish, "consume": consume}[role](*words))
