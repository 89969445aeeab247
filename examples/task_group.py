"""Two consumers and a producer that live and end together: `python examples/task_group.py TOPIC HOST:PORT`.

Numbers in TOPIC are degrees Celsius. One task publishes them in Fahrenheit to TOPIC-fahrenheit, the other one prints
what comes there. Something that is no number ends both.
"""

import asyncio
import contextlib
import sys

from nsqfast.client import Consumer, Producer

CHANNEL = "task-group"


async def convert(topic: str, address: str, producer: Producer) -> None:
    async with Consumer(topic, CHANNEL, nsqd=address) as consumer:
        async for message in consumer:
            celsius = float(message.body)
            # Published before it is finished: if the program dies in between, it comes twice, and is never lost.
            await producer.publish(f"{topic}-fahrenheit", b"%.1f" % (celsius * 1.8 + 32))
            message.finish()


async def show(topic: str, address: str) -> None:
    async with Consumer(f"{topic}-fahrenheit", CHANNEL, nsqd=address) as consumer:
        async for message in consumer:
            print(message.body.decode(), flush=True)
            message.finish()


async def main(topic: str, address: str) -> None:
    # The producer is the outer one: it hangs up when both consumers have.
    async with Producer(address) as producer, asyncio.TaskGroup() as group:
        group.create_task(convert(topic, address, producer))
        group.create_task(show(topic, address))


if __name__ == "__main__":
    # When one task fails, or at Ctrl-C, the group cancels the others; leaving `async with` hands back what they had.
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(main(*sys.argv[1:]))
        except* ValueError as group:
            sys.exit(f"ended: {group.exceptions[0]}")
