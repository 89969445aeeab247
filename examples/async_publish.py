"""Publish in asyncio: one message, several, one for later, and 100,000 as fast as it goes.

python examples/async_publish.py [TOPIC] [--nsqd HOST:PORT]
"""

import asyncio

import arguments
from nsqfast.client import BufferFullError, Producer, PublishError


async def main() -> None:
    given = arguments.Parser(__doc__, topic="test").parse()
    # With several nsqd they take turns, and what one of them does not answer goes to another one.
    async with Producer(*given.nsqd) as producer:
        # One that is known to be there when the line is done.
        await producer.publish(given.topic, b"one")

        # All or none, and one that nsqd holds back.
        await producer.publish_many(given.topic, [b"two", b"three"])
        await producer.publish_later(given.topic, b"four", delay_s=0.5)

        # As fast as it goes; answers are awaited at the end.
        for number in range(100_000):
            try:
                producer.send(given.topic, b"%d" % number)
            except BufferFullError:
                await producer.drain()
                producer.send(given.topic, b"%d" % number)
        try:
            await producer.flush()
        except PublishError as error:
            print("not all of them:", error)
    print(f"messages published to {given.topic}: {producer.stats().published}")


if __name__ == "__main__":
    asyncio.run(main())
