# pyright: strict
"""Makes thumbnails: `python thumbnails.py HOST:PORT TOPIC CHANNEL FOLDER`, until SIGTERM or Ctrl-C.

A message is the name of a file in FOLDER. While FOLDER/maintenance exists, nothing is begun.
"""

import argparse
import hashlib
import logging
import signal
import sys
import threading
import time
from pathlib import Path

from nsqfast.client import NsqfastError
from nsqfast.client.sync import Config, Consumer, Message

THREADS = 4
LOOK_S = 0.05

logger = logging.getLogger("thumbnails")


def make(path: Path, seconds: float) -> None:
    """In place of the scaling of an image, which keeps a thread busy."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    time.sleep(seconds)
    path.with_suffix(".thumb").write_text(digest, encoding="ascii")


def watch(consumer: Consumer, flag: Path, ended: threading.Event) -> None:
    """Pause the consumer for as long as the flag is there."""
    while not ended.wait(LOOK_S):
        if flag.exists() != consumer.is_paused:
            if consumer.is_paused:
                consumer.resume()
            else:
                consumer.pause()
            logger.info("paused" if consumer.is_paused else "resumed")


def work(consumer: Consumer, folder: Path, job_s: float) -> None:
    signals: list[int] = []

    def stop(number: int, _frame: object) -> None:
        signals.append(number)
        consumer.request_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)

    def handle(message: Message) -> None:
        logger.info("begun: %s", message.body.decode())
        make(folder / message.body.decode(), job_s)

    flag = folder / "maintenance"
    if flag.exists():
        logger.info("waiting for the end of maintenance")
    # A consumer gets its first message as soon as it is connected, paused or not.
    while flag.exists() and not signals:
        time.sleep(LOOK_S)
    ended = threading.Event()
    watcher = threading.Thread(target=watch, args=(consumer, flag, ended))
    with consumer:
        watcher.start()
        try:
            consumer.run(handle, concurrency=THREADS)
        finally:
            ended.set()
            watcher.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("address", "topic", "channel"):
        parser.add_argument(name)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--job-s", type=float, default=0.1, help="how long one takes")
    parser.add_argument("--msg-timeout-s", type=float, default=60, help="between two touches")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    try:
        consumer = Consumer(
            arguments.topic,
            arguments.channel,
            nsqd=arguments.address,
            config=Config(msg_timeout_s=arguments.msg_timeout_s),
            auto_touch=True,
            logger=logger,
        )
        work(consumer, arguments.folder, arguments.job_s)
    except NsqfastError as error:
        sys.exit(f"thumbnails: {error}")
    stats = consumer.stats()
    print(f"finished {stats.finished}, requeued {stats.requeued}, touched {stats.touched}")


if __name__ == "__main__":
    main()
