"""Messages as numpy arrays: `python examples/arrays.py TOPIC CHANNEL HOST:PORT COUNT`.

Sums up the sizes of all bodies and finds the slowest message, without a Python object for any of them.
Needs `pip install 'nsqfast[arrays]'`.
"""

import asyncio
import sys
import time

import numpy as np

from nsqfast.client import Config, Consumer


async def main(topic: str, channel: str, address: str, count: str) -> None:
    left, size, latest_s = int(count), 0, 0.0
    config = Config(max_in_flight=2500)
    async with Consumer(topic, channel, nsqd=address, config=config) as consumer:
        async for batch in consumer.arrays(max_messages=10_000, max_wait_s=0.2):
            size += int(np.diff(batch.offsets).sum())
            ages_s = (time.time_ns() - batch.timestamps) / 1e9
            latest_s = max(latest_s, float(ages_s.max()))
            first_tries = np.flatnonzero(batch.attempts == 1)
            batch.finish(first_tries)
            batch.finish()  # the rest
            left -= len(batch)
            if left <= 0:
                break
    print(f"{size} bytes, the oldest message was {latest_s:.3f} s old")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
