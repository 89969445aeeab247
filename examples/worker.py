"""A worker: `python examples/worker.py TOPIC CHANNEL HOST:PORT [KEY,VALUE ...]`, until SIGTERM or Ctrl-C.

A job is JSON, {"name": "report", "seconds": 0.5}; sixteen run at a time. One that fails is tried again after 5 s, then
after 10 s, and so on; after four attempts it goes to TOPIC-dead. While jobs fail, backoff lets fewer of all begin.
Further arguments change SETTINGS: max_attempts,2.
"""

import asyncio
import json
import logging
import signal
import sys

from nsqfast.client import Config, Consumer, Message, Producer

CONCURRENCY = 16
SETTINGS = ("max_attempts,4", "default_requeue_delay,5s")


async def handle(message: Message) -> None:
    """Its return finishes the message, an exception requeues it: for the delay times the attempts so far."""
    job = json.loads(message.body)
    print("begun:", job["name"], flush=True)
    await asyncio.sleep(job["seconds"])  # in place of the real work
    print("done:", job["name"], flush=True)


async def main(topic: str, channel: str, address: str, *settings: str) -> None:
    async with Producer(address) as producer:

        async def bury(message: Message) -> None:
            """If this fails, the message is requeued once more, not lost."""
            await producer.publish(f"{topic}-dead", message.body)
            print("dead:", message.body.decode(errors="replace"), flush=True)

        consumer = Consumer(
            topic,
            channel,
            nsqd=address,
            config=Config.parse([*SETTINGS, *settings]),
            auto_touch=True,  # a job may take longer than nsqd's message timeout
            giving_up=bury,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, consumer.request_stop)
        # After a signal, jobs that run have half a minute to end; all others are handed back at once.
        await consumer.run(handle, concurrency=CONCURRENCY, grace_s=30)


if __name__ == "__main__":
    logging.basicConfig()
    asyncio.run(main(*sys.argv[1:]))
