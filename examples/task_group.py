"""Two consumers and a producer that live and end together, until Ctrl-C.

python examples/task_group.py [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT]

Numbers in TOPIC are degrees Celsius. One task publishes them in Fahrenheit to TOPIC-fahrenheit, the other one prints
what comes there. Something that is no number ends both.
"""

import argparse
import asyncio
import contextlib
import sys

import arguments
from nsqfast.client import Consumer, Producer


def consumer_of(topic: str, given: argparse.Namespace) -> Consumer:
    return Consumer(topic, given.channel, nsqd=given.nsqd, nsqlookupd=given.nsqlookupd)


async def convert(given: argparse.Namespace, producer: Producer) -> None:
    async with consumer_of(given.topic, given) as consumer:
        async for message in consumer:
            celsius = float(message.body)
            # Published before it is finished: if the program dies in between, it comes twice, and is never lost.
            body = b"%.1f" % (celsius * 1.8 + 32)
            await producer.publish(f"{given.topic}-fahrenheit", body)
            message.finish()


async def show(given: argparse.Namespace) -> None:
    async with consumer_of(f"{given.topic}-fahrenheit", given) as consumer:
        async for message in consumer:
            print(message.body.decode(), flush=True)
            message.finish()


async def main() -> None:
    parser = arguments.Parser(__doc__, "temperatures", "task-group", publishes=True)
    given = parser.parse()
    # The producer is the outer one: it hangs up when both consumers have.
    async with Producer(*given.nsqd) as producer, asyncio.TaskGroup() as group:
        group.create_task(convert(given, producer))
        group.create_task(show(given))


if __name__ == "__main__":
    error = None
    # When one task fails, or at Ctrl-C, the group cancels the others; leaving `async with` hands back what they had.
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(main())
        except* ValueError as group:
            # No exit from here: Python before 3.11.4 would put it into a group, and print that.
            error = group.exceptions[0]
    if error is not None:
        sys.exit(f"ended: {error}")
