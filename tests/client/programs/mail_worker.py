# pyright: strict
"""Sends the mails of a topic: `python mail_worker.py HOST:PORT TOPIC CHANNEL`, until SIGTERM or Ctrl-C.

A mail that is refused is tried again later and later; after three attempts it goes to TOPIC-dead.
"""

import argparse
import asyncio
import logging
import sys

from nsqfast import Config, Consumer, Message, NsqfastError, Producer

logger = logging.getLogger("mail_worker")

CONCURRENCY = 32
ATTEMPTS = 3


class MailError(Exception):
    """The mail server did not take a mail."""


async def send_mail(body: bytes, attempt: int, seconds: float) -> None:
    """In place of a mail server: it never takes what is bad, and is too busy once for some."""
    await asyncio.sleep(seconds)
    if body.startswith(b"bad") or (body.startswith(b"busy") and attempt == 1):
        raise MailError(body.decode(errors="replace"))


class Worker:
    def __init__(self, producer: Producer, topic: str, send_s: float, retry_s: float) -> None:
        self.sent = 0
        self.dead = 0
        self._producer = producer
        self._dead_topic = f"{topic}-dead"
        self._send_s = send_s
        self._retry_s = retry_s

    async def handle(self, message: Message) -> None:
        logger.info("sending: %s", message.body.decode())
        try:
            await send_mail(message.body, message.attempts, self._send_s)
        except MailError:
            # One bad address says nothing about the others, so they are not slowed down.
            message.requeue(self._retry_s * 2 ** (message.attempts - 1), backoff=False)
        else:
            self.sent += 1

    async def give_up(self, message: Message) -> None:
        """If this fails, the message is delivered again, and not lost."""
        await self._producer.publish(self._dead_topic, message.body)
        self.dead += 1


async def work(arguments: argparse.Namespace) -> None:
    topic: str = arguments.topic
    async with Producer(arguments.address) as producer:
        worker = Worker(producer, topic, arguments.send_s, arguments.retry_s)
        consumer = Consumer(
            topic,
            arguments.channel,
            nsqd=arguments.address,
            config=Config(max_attempts=ATTEMPTS),
            giving_up=worker.give_up,
        )
        await consumer.run(worker.handle, concurrency=CONCURRENCY)
    stats = consumer.stats()
    print(f"sent {worker.sent}, requeued {stats.requeued}, dead {worker.dead}")
    print(f"received {stats.received}, finished {stats.finished}, given up {stats.given_up}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", metavar="ADDR")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("channel", metavar="CHANNEL")
    parser.add_argument("--send-s", type=float, default=0.01, help="how long a mail takes")
    parser.add_argument("--retry-s", type=float, default=0.5, help="the first pause, then doubled")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(work(arguments))
    except NsqfastError as error:
        sys.exit(f"mail_worker: {error}")


if __name__ == "__main__":
    main()
