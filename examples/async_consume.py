"""Take messages one by one: `python examples/async_consume.py TOPIC CHANNEL HOST:PORT COUNT`."""

import asyncio
import sys

from nsqfast.client import Config, Consumer


async def main(topic: str, channel: str, address: str, count: str) -> None:
    left = int(count)
    # Addresses of nsqlookupd go into nsqlookupd=["host:4161", ...] instead.
    config = Config(max_in_flight=100)
    async with Consumer(topic, channel, nsqd=address, config=config) as consumer:
        async for message in consumer:
            print(message.body.decode(), f"attempt {message.attempts}", flush=True)
            if message.body == b"later" and message.attempts == 1:
                message.requeue(delay_s=0.1)
                continue
            message.finish()
            left -= 1
            if not left:
                break
    # What was received and not finished has been handed back by now.


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
