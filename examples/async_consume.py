"""Take messages one by one in asyncio, until Ctrl-C; a message that says "later" is requeued once.

python examples/async_consume.py [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT] [--count N]
"""

import asyncio
import sys

import arguments
from nsqfast.client import Config, Consumer


async def main() -> None:
    parser = arguments.Parser(__doc__, topic="test", channel="printer")
    parser.add_count()
    given = parser.parse()
    finished = 0
    consumer = Consumer(
        given.topic,
        given.channel,
        nsqd=given.nsqd,
        nsqlookupd=given.nsqlookupd,
        config=Config(max_in_flight=100),
    )
    arguments.stop_at_signals(consumer)
    async with consumer:
        async for message in consumer:
            text = message.body.decode(errors="replace")
            print(text, f"attempt {message.attempts}", flush=True)
            if text == "later" and message.attempts == 1:
                message.requeue(delay_s=0.1)
                continue
            message.finish()
            finished += 1
            if finished == given.count:
                break
    # What was received and not finished has been handed back by now.
    print("messages finished:", finished, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
