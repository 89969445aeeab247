"""Three ways to publish in asyncio: `python examples/async_publish.py TOPIC HOST:PORT [HOST:PORT ...]`."""

import asyncio
import sys

from nsqfast.client import BufferFullError, Producer, PublishError


async def main(topic: str, *addresses: str) -> None:
    # With several nsqd they take turns, and what one of them does not answer goes to another one.
    async with Producer(*addresses) as producer:
        # One that is known to be there when the line is done.
        await producer.publish(topic, b"one")

        # All or none, and one that nsqd holds back.
        await producer.publish_many(topic, [b"two", b"three"])
        await producer.publish_later(topic, b"four", delay_s=0.5)

        # As fast as it goes; answers are awaited at the end.
        for number in range(100_000):
            try:
                producer.send(topic, b"%d" % number)
            except BufferFullError:
                await producer.drain()
                producer.send(topic, b"%d" % number)
        try:
            await producer.flush()
        except PublishError as error:
            print("not all of them:", error)
        print(producer.stats().published, "published")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
