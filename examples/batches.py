"""Store messages in a table, a batch at a time, until Ctrl-C.

python examples/batches.py [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT] [--count N]
"""

import asyncio
import sqlite3

import arguments
from nsqfast.client import Consumer


async def main() -> None:
    parser = arguments.Parser(__doc__, topic="test", channel="batches")
    parser.add_count()
    given = parser.parse()
    taken = 0
    database = sqlite3.connect(":memory:")
    database.execute("create table events (id text primary key, body blob)")
    consumer = Consumer(given.topic, given.channel, nsqd=given.nsqd, nsqlookupd=given.nsqlookupd)
    arguments.stop_at_signals(consumer)
    async with consumer:
        async for batch in consumer.batches(max_messages=500, max_wait_s=0.2):
            rows = [(message.id.decode(), message.body) for message in batch]
            with database:
                # A message may come twice; its id says so.
                database.executemany("insert or ignore into events values (?, ?)", rows)
            batch.finish()
            taken += len(batch)
            if given.count and taken >= given.count:
                break
    (stored,) = database.execute("select count(*) from events").fetchone()
    print(f"messages: {taken}, rows: {stored}")
    database.close()


if __name__ == "__main__":
    asyncio.run(main())
