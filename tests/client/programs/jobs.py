# pyright: strict
"""Schedules a job, looks at it, and calls it off: `python jobs.py HOST:PORT TOPIC --http HOST:PORT`."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from nsqfast.client import Admin, DelayedMessage, NsqfastError, Peek, Producer, sync

DELAY = timedelta(minutes=30)
CHANNEL = "jobs"


def list_due(peeks: Sequence[Peek]) -> Iterator[str]:
    for peek in peeks:
        for message in peek.messages:
            due: datetime = message.due or datetime.now(UTC)
            yield f"{message.id.decode()} {message.body.decode()} {due > datetime.now(UTC)}"


async def schedule(address: str, http: str, topic: str) -> DelayedMessage:
    """Leave one of two jobs."""
    async with Producer(address) as producer, Admin(http) as admin:
        await admin.create_channel(topic, CHANNEL)
        kept = await producer.publish_delayed(topic, b"kept", DELAY)
        other = await producer.publish_delayed(topic, b"other", datetime.now(UTC) + DELAY)
        print(*list_due(await admin.deferred(topic, CHANNEL)), sep="\n")
        print(f"cancelled in {await other.cancel()}, run in {await other.run_now()}")
        return kept


def call_off(address: str, http: str, kept: DelayedMessage) -> None:
    """From another program, which has no event loop."""
    with sync.Producer(address) as producer, sync.Admin(http) as admin:
        for nsqd in admin.stats(kept.topic, channel=CHANNEL):
            print(f"deferred: {nsqd.topics[kept.topic].channels[CHANNEL].deferred_count}")
        assert kept.id is not None
        job: sync.DelayedMessage = producer.delayed_message(kept.topic, kept.nsqd, kept.id)
        print(f"run in {job.run_now()}, cancelled in {job.cancel()}")
        bodies = [one.body for peek in admin.peek(kept.topic, CHANNEL) for one in peek.messages]
        print(f"ready: {bodies}, deleted at {len(admin.delete_topic(kept.topic))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", metavar="ADDR")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--http", metavar="ADDR", required=True)
    arguments = parser.parse_args()
    logging.getLogger("nsqfast.client").addHandler(logging.NullHandler())
    try:
        kept = asyncio.run(schedule(arguments.address, arguments.http, arguments.topic))
        call_off(arguments.address, arguments.http, kept)
    except NsqfastError as error:
        sys.exit(f"jobs: {error}")


if __name__ == "__main__":
    main()
