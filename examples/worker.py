"""A worker, until SIGTERM or Ctrl-C.

python examples/worker.py [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT] [--consumer-opt KEY,VALUE]

A job is JSON, {"name": "report", "seconds": 0.5}; sixteen run at a time. One that fails is tried again after 5 s, then
after 10 s, and so on; after four attempts it goes to TOPIC-dead. While half of the jobs fail, or more, backoff lets
fewer of all begin.
--consumer-opt changes a setting of the client: max_attempts,2.
"""

import asyncio
import json

import arguments
from nsqfast.client import Config, Consumer, Message

CONCURRENCY = 16
SETTINGS = ("max_attempts,4", "default_requeue_delay,5s")


async def handle(message: Message) -> None:
    """Its return finishes the message, an exception requeues it: for the delay times the attempts so far."""
    job = json.loads(message.body)
    print("begun:", job["name"], flush=True)
    await asyncio.sleep(job["seconds"])  # in place of the real work
    print("done:", job["name"], flush=True)


async def main() -> None:
    parser = arguments.Parser(__doc__, "jobs", "workers")
    parser.add_argument("--consumer-opt", action="append", default=[], metavar="KEY,VALUE")
    given = parser.parse()
    consumer = Consumer(
        given.topic,
        given.channel,
        nsqd=given.nsqd,
        nsqlookupd=given.nsqlookupd,
        config=Config.parse([*SETTINGS, *given.consumer_opt]),
        auto_touch=True,  # a job may take longer than nsqd's message timeout
        dead_letter_topic=f"{given.topic}-dead",
    )
    # After a signal, jobs that run have half a minute to end; all others are handed back at once.
    await consumer.run(handle, concurrency=CONCURRENCY, grace_s=30)
    figures = consumer.stats()
    print(f"jobs finished: {figures.finished}, of which given up: {figures.given_up}")


if __name__ == "__main__":
    asyncio.run(main())
