"""Messages as pandas.DataFrame: `python examples/pandas_frame.py TOPIC CHANNEL HOST:PORT COUNT FILE.csv`.

A body is JSON, {"amount": 12.5}. Each batch adds its sums per minute to FILE.csv; after COUNT messages the totals of
the file are printed. Needs `pip install 'nsqfast[arrays]' pandas`.
"""

import asyncio
import itertools
import math
import os
import sys
from pathlib import Path

import numpy as np
import orjson
import pandas as pd

from nsqfast.client import Consumer


def parse(body: bytes) -> float:
    """The amount; NaN for what is broken, which is counted, and holds up nothing else."""
    try:
        return float(orjson.loads(body)["amount"])
    except (ValueError, TypeError, KeyError):
        return math.nan


def append(sums: pd.DataFrame, path: Path) -> None:
    with path.open("a", newline="", encoding="utf-8") as file:
        sums.to_csv(file, header=file.tell() == 0)
        file.flush()
        os.fsync(file.fileno())


async def main(topic: str, channel: str, address: str, count: str, path: str) -> None:
    left = int(count)
    async with Consumer(topic, channel, nsqd=address) as consumer:
        async for batch in consumer.arrays(max_messages=2500, max_wait_s=0.2):
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
            append(frame.groupby("minute").sum(), Path(path))
            batch.finish()  # only now: a crash may have a batch counted twice, but loses none
            if (left := left - len(batch)) <= 0:
                break
    print(pd.read_csv(path).groupby("minute").sum().to_string())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
