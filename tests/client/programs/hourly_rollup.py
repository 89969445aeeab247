# pyright: strict
"""Counts messages by the minute: `python hourly_rollup.py HOST:PORT TOPIC CHANNEL OUT.npz`.

It ends when nothing has come for 2 s. A second run adds to what is in the file.
"""

import argparse
import sys
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nsqfast.client import NsqfastError
from nsqfast.client.sync import Config, Consumer

IDLE_S = 2.0
MINUTE_NS = 60 * 10**9
# An nsqd delivers no more at a time (--max-rdy-count), and a larger batch would wait for what cannot come.
BATCH_MAX = 2500
COLUMNS = ("minute", "count", "bytes", "age_ns")

Ints = npt.NDArray[np.int64]


class Rollup:
    """A table of a row for each minute."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: dict[int, list[int]] = {}
        if path.exists():
            with np.load(path) as stored:
                table = np.column_stack([stored[name] for name in COLUMNS])
            self.rows = {minute: sums for minute, *sums in table.tolist()}

    def add(self, timestamps: Ints, sizes: Ints, now_ns: int) -> None:
        minutes = timestamps // MINUTE_NS
        for minute in np.unique(minutes).tolist():
            chosen = minutes == minute
            ages = now_ns - timestamps[chosen]
            new = (int(chosen.sum()), int(sizes[chosen].sum()), int(ages.sum()))
            old = self.rows.get(minute, [0, 0, 0])
            self.rows[minute] = [a + b for a, b in zip(old, new, strict=True)]

    def store(self) -> None:
        """In one step, so that there is always a whole file."""
        table = np.array([[minute, *sums] for minute, sums in sorted(self.rows.items())])
        temporary = self._path.with_suffix(".new.npz")
        np.savez(temporary, **dict(zip(COLUMNS, table.T, strict=True)))
        temporary.replace(self._path)


def roll_up(address: str, topic: str, channel: str, rollup: Rollup) -> int:
    """The number of messages that are stored now and were not before."""
    total = 0
    # None is given up: what was delivered often counts like any other.
    with Consumer(topic, channel, nsqd=address, config=Config(max_attempts=0)) as consumer:
        idle = threading.Timer(IDLE_S, consumer.request_stop)
        idle.start()
        for batch in consumer.arrays(max_messages=BATCH_MAX, max_wait_s=0.5):
            idle.cancel()
            rollup.add(batch.timestamps, np.diff(batch.offsets), time.time_ns())
            rollup.store()
            batch.finish()
            total += len(batch.timestamps)
            idle = threading.Timer(IDLE_S, consumer.request_stop)
            idle.start()
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", metavar="ADDR")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("channel", metavar="CHANNEL")
    parser.add_argument("out", metavar="OUT.npz", type=Path)
    arguments = parser.parse_args()
    try:
        rollup = Rollup(arguments.out)
        total = roll_up(arguments.address, arguments.topic, arguments.channel, rollup)
    except (NsqfastError, OSError) as error:
        sys.exit(f"hourly_rollup: {error}")
    print(f"{total} messages, {len(rollup.rows)} minutes")


if __name__ == "__main__":
    main()
