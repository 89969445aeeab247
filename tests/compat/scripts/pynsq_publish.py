"""Publishes the lines that it reads with pynsq, as to_nsq does, and ends with what nsqd refuses: ADDRESS TOPIC."""

import asyncio
import sys

import nsq


async def publish(address, topic):
    writer = nsq.Writer([address])
    while not writer.conns:
        await asyncio.sleep(0.01)
    for line in sys.stdin.buffer:
        answer = asyncio.get_running_loop().create_future()
        writer.pub(topic, line.rstrip(), lambda _, data, done=answer.set_result: done(data))
        if isinstance(said := await answer, nsq.Error):
            sys.exit(str(said))


if __name__ == "__main__":
    asyncio.run(publish(*sys.argv[1:]))
