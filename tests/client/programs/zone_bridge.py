# pyright: strict
"""Carries a topic out of one zone: `python zone_bridge.py --lookupd ADDR --zone PREFIX --to ADDR TOPIC CHANNEL`.

--lookupd and --to may be repeated. After SIGHUP the targets are those in --to-file. SIGTERM and Ctrl-C end it.
"""

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nsqfast import Config, Consumer, Message, Middleware, NsqfastError, Producer

logger = logging.getLogger("zone_bridge")


class Side:
    """How many messages one side had, and how long they took."""

    count = 0
    seconds = 0.0

    @contextmanager
    def timed(self, count: int) -> Generator[None]:
        began_s = time.perf_counter()
        yield
        self.count += count
        self.seconds += time.perf_counter() - began_s


class Figures(Middleware):
    def __init__(self) -> None:
        self.handled, self.published = Side(), Side()

    @contextmanager
    def handle(self, topic: str, channel: str, message: Message) -> Generator[None]:
        with self.handled.timed(1):
            yield

    @contextmanager
    def publish(self, topic: str, bodies: Sequence[bytes]) -> Generator[Sequence[bytes]]:
        with self.published.timed(len(bodies)):
            yield bodies


async def follow(producer: Producer, path: Path, current: set[str], hup: asyncio.Event) -> None:
    while True:
        await hup.wait()
        hup.clear()
        try:
            wanted = set((await asyncio.to_thread(path.read_text, encoding="ascii")).split())
            for address in sorted(wanted - current):  # the new ones first: there is always somebody
                await producer.add_nsqd(address)
                current.add(address)
            for address in sorted(current - wanted if wanted else ()):
                await producer.drop_nsqd(address)
                current.remove(address)
        except (NsqfastError, OSError) as error:
            logger.warning("not all of %s could be done: %s", path, error)
        logger.info("targets: %s", " ".join(sorted(current)))


async def bridge(arguments: argparse.Namespace) -> None:
    topic: str = arguments.topic
    zone: str = arguments.zone
    figures, hup = Figures(), asyncio.Event()
    async with Producer(arguments.to, middleware=[figures]) as producer:

        async def carry(message: Message) -> None:
            await producer.publish(topic, message.body)  # so a target has it before it is finished

        consumer = Consumer(
            topic,
            arguments.channel,
            nsqlookupd=arguments.lookupd,
            config=Config(lookupd_poll_interval_s=5),
            choose_nodes=lambda found: [address for address in found if address.startswith(zone)],
            middleware=[figures],
        )
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, hup.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, consumer.request_stop)
        following = loop.create_task(follow(producer, arguments.to_file, set(arguments.to), hup))
        await consumer.run(carry, concurrency=16)
        following.cancel()
    print(f"handled {figures.handled.count} in {figures.handled.seconds:.3f} s")
    print(f"published {figures.published.count} in {figures.published.seconds:.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zone", required=True, metavar="PREFIX")
    parser.add_argument("--to-file", type=Path, default=Path("targets.txt"))
    for name in ("--lookupd", "--to"):
        parser.add_argument(name, action="append", required=True, metavar="ADDR")
    for name in ("topic", "channel"):
        parser.add_argument(name)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(bridge(arguments))
    except NsqfastError as error:
        sys.exit(f"zone_bridge: {error}")


if __name__ == "__main__":
    main()
