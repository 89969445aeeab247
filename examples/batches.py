"""Messages in batches, for a database say: `python examples/batches.py TOPIC CHANNEL HOST:PORT COUNT`."""

import asyncio
import sqlite3
import sys

from nsqfast.client import Config, Consumer


async def main(topic: str, channel: str, address: str, count: str) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("create table events (id text primary key, body blob)")
    left = int(count)
    config = Config(max_in_flight=500)
    async with Consumer(topic, channel, nsqd=address, config=config) as consumer:
        async for batch in consumer.batches(max_messages=500, max_wait_s=0.2):
            rows = [(message.id.decode(), message.body) for message in batch]
            with database:
                # A message may come twice; its id says so.
                database.executemany("insert or ignore into events values (?, ?)", rows)
            batch.finish()
            left -= len(batch)
            if left <= 0:
                break
    (stored,) = database.execute("select count(*) from events").fetchone()
    print(stored, "rows")
    database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
