"""Sums per minute with pandas, until Ctrl-C.

python examples/pandas_frame.py [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT] [--count N]

A body is JSON, {"amount": 12.5}. Each batch adds its sums to --output; the totals of that file are printed at the end.
Needs `pip install 'nsqfast[arrays]' pandas`.
"""

import asyncio
import itertools
import math
import os
from pathlib import Path

import numpy as np
import orjson
import pandas as pd

import arguments
from nsqfast.client import ArrayBatch, Consumer


def parse(body: bytes) -> float:
    """The amount; NaN for what is broken, which is counted, and holds up nothing else."""
    try:
        return float(orjson.loads(body)["amount"])
    except (ValueError, TypeError, KeyError):
        return math.nan


def sum_up(batch: ArrayBatch) -> pd.DataFrame:
    """By the minute in which they were published."""
    bounds = itertools.pairwise(batch.offsets.tolist())
    frame = pd.DataFrame(
        {
            "minute": pd.to_datetime(batch.timestamps, unit="ns", utc=True).floor("min"),
            "messages": 1,
            "retries": batch.attempts - 1,
            "bytes": np.diff(batch.offsets),
            "amount": [parse(batch.bodies[start:end]) for start, end in bounds],
        }
    )
    frame["broken"] = frame["amount"].isna()
    return frame.groupby("minute").sum()


def append(sums: pd.DataFrame, path: Path) -> None:
    with path.open("a", newline="", encoding="utf-8") as file:
        sums.to_csv(file, header=file.tell() == 0)
        file.flush()
        os.fsync(file.fileno())


async def main() -> None:
    parser = arguments.Parser(__doc__, topic="test", channel="pandas")
    parser.add_count()
    parser.add_argument("--output", type=Path, default=Path("sums.csv"), help="default: sums.csv")
    given = parser.parse()
    taken = 0
    consumer = Consumer(given.topic, given.channel, nsqd=given.nsqd, nsqlookupd=given.nsqlookupd)
    arguments.stop_at_signals(consumer)
    async with consumer:
        async for batch in consumer.arrays(max_messages=2500, max_wait_s=0.2):
            append(sum_up(batch), given.output)
            batch.finish()  # only now: a crash may have a batch counted twice, but loses none
            taken += len(batch)
            if given.count and taken >= given.count:
                break
    if taken:
        print(pd.read_csv(given.output).groupby("minute").sum().to_string())
    print(f"messages added to {given.output}: {taken}")


if __name__ == "__main__":
    asyncio.run(main())
