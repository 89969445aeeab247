"""Messages as numpy arrays, without a Python object for any of them, until Ctrl-C.

python examples/arrays.py [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT] [--count N]

It adds up the sizes of all bodies and finds the slowest message. Needs `pip install 'nsqfast[arrays]'`.
"""

import asyncio
import time

import numpy as np

import arguments
from nsqfast.client import Config, Consumer


async def main() -> None:
    parser = arguments.Parser(__doc__, topic="test", channel="arrays")
    parser.add_count()
    given = parser.parse()
    taken, size, latest_s = 0, 0, 0.0
    consumer = Consumer(
        given.topic,
        given.channel,
        nsqd=given.nsqd,
        nsqlookupd=given.nsqlookupd,
        config=Config(max_in_flight=2500),
    )
    arguments.stop_at_signals(consumer)
    async with consumer:
        async for batch in consumer.arrays(max_messages=10_000, max_wait_s=0.2):
            size += int(np.diff(batch.offsets).sum())
            ages_s = (time.time_ns() - batch.timestamps) / 1e9
            latest_s = max(latest_s, float(ages_s.max()))
            first_tries = np.flatnonzero(batch.attempts == 1)
            batch.finish(first_tries)
            batch.finish()  # the rest
            taken += len(batch)
            if given.count and taken >= given.count:
                break
    print(f"messages: {taken}, bytes: {size}, the oldest was {latest_s:.3f} s old")


if __name__ == "__main__":
    asyncio.run(main())
