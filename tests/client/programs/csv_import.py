# pyright: strict
"""Publishes each line of a file: `python csv_import.py HOST:PORT TOPIC FILE`."""

import argparse
import logging
import sys
from pathlib import Path

from nsqfast.client import NsqfastError
from nsqfast.client.sync import Producer

LINES_PER_FLUSH = 20_000  # so that an nsqd that went away is noticed before the end of a long file


def import_file(address: str, topic: str, path: Path, timeout_s: float) -> int:
    """The number of lines; empty ones are left out, because NSQ has no empty messages."""
    count = 0
    with (
        path.open("rb") as file,
        Producer(address, timeout_s=timeout_s, close_timeout_s=1.0) as producer,
    ):
        producer.ping()
        for line in file:
            body = line.rstrip(b"\r\n")
            if not body:
                continue
            producer.send(topic, body)
            count += 1
            if count % LINES_PER_FLUSH == 0:
                producer.flush()
        producer.flush()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", metavar="ADDR")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--timeout-s", type=float, default=5.0, help="patience with nsqd")
    arguments = parser.parse_args()
    # What would be logged is in the error, too, and one line is enough.
    logging.getLogger("nsqfast.client").addHandler(logging.NullHandler())
    try:
        count = import_file(arguments.address, arguments.topic, arguments.file, arguments.timeout_s)
    except (NsqfastError, OSError) as error:
        sys.exit(f"csv_import: {error}")
    print(f"published {count} lines")


if __name__ == "__main__":
    main()
