"""A service: `python examples/handler.py TOPIC CHANNEL HOST:PORT`, until SIGTERM or Ctrl-C.

Sixteen messages at a time, those that fail again and again go to TOPIC-dead.
"""

import asyncio
import logging
import signal
import sys

from nsqfast.client import Config, Consumer, Message, Producer


async def handle(message: Message) -> None:
    """Its return finishes the message, an exception requeues it, later and later."""
    if message.body == b"poison":
        raise ValueError("this can never work")
    await asyncio.sleep(0.01)
    print("done:", message.body.decode(), flush=True)


async def main(topic: str, channel: str, address: str) -> None:
    async with Producer(address) as producer:

        async def bury(message: Message) -> None:
            """If this fails, the message stays where it is."""
            await producer.publish(f"{topic}-dead", message.body)
            print("dead:", message.body.decode(), flush=True)

        config = Config(
            max_in_flight=64,
            max_attempts=2,
            default_requeue_delay="50ms",
            backoff_multiplier="10ms",
        )
        consumer = Consumer(
            topic,
            channel,
            nsqd=address,
            config=config,
            auto_touch=True,  # handlers may take longer than nsqd's message timeout
            giving_up=bury,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Handlers that run may end, the rest is handed back.
            loop.add_signal_handler(number, consumer.request_stop)
        await consumer.run(handle, concurrency=16)


if __name__ == "__main__":
    logging.basicConfig()
    asyncio.run(main(*sys.argv[1:]))
