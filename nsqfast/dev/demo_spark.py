"""A first look at NSQ with Spark, which is what `make up ARGS=--demo-spark` runs:

    python -m nsqfast.dev.demo_spark [--demo-spark] [FLAG OF nsqfast-nsqd ...]

It starts nsqfast-nsqd on free ports and a temporary folder, publishes orders to it, lets the job `ingest` put them into
Parquet, prints what arrived, and stops all of it.
"""

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from nsqfast.client.sync import Producer
from nsqfast.dev.daemons import DemoError, start_broker
from nsqfast.errors import NsqfastError
from nsqfast.spark.runtime import find_java
from nsqfast.spark_jobs import ingest
from nsqfast.spark_jobs.options import JobOptions
from nsqfast.spark_jobs.session import open_session

TOPIC, CHANNEL = "orders", "lake"
COUNT = 100_000
BATCH = 1000
COUNTRIES = ("DE", "FR", "JP", "NL", "US")
SEED = 14


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    flags = [
        word
        for word in (sys.argv[1:] if arguments is None else arguments)
        if word != "--demo-spark"
    ]
    try:
        find_java()
        demonstrate(flags)
    except (DemoError, NsqfastError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def demonstrate(flags: list[str]) -> None:
    """Go from a load to a table."""
    with tempfile.TemporaryDirectory(prefix="nsqfast-demo-") as name:
        folder = Path(name)
        (folder / "nsqd").mkdir()
        daemon = start_broker(folder / "nsqd", flags)
        try:
            daemon.wait_until_listening()
            address = f"127.0.0.1:{daemon.ports['TCP']}"
            print(f"nsqfast-nsqd: TCP port {daemon.ports['TCP']}, HTTP port {daemon.ports['HTTP']}")
            publish(address)
            with open_session(JobOptions(), "demo", None) as spark:
                take_in(spark, folder, address)
                show(spark, folder / "lake")
        finally:
            status = daemon.stop()
        if status:
            raise DemoError(f"nsqfast-nsqd ended with {status}:\n" + "".join(daemon.log))
    print("nsqfast-nsqd: stopped")


def publish(address: str) -> None:
    """Publish orders from five countries."""
    begun_s = time.monotonic()
    with Producer(address) as producer:
        for bodies in make_orders():
            producer.publish_many(TOPIC, bodies)
    print(f"load: {COUNT:,} orders published in {time.monotonic() - begun_s:.2f} s")


def make_orders() -> Iterator[list[bytes]]:
    """Yield batches."""
    chance = random.Random(SEED)  # noqa: S311 - not a secret
    for first in range(0, COUNT, BATCH):
        yield [
            orjson.dumps(
                {
                    "order": number,
                    "country": chance.choice(COUNTRIES),
                    "cents": chance.randrange(100, 100_000),
                }
            )
            for number in range(first, first + BATCH)
        ]


def take_in(spark: Any, folder: Path, address: str) -> None:
    """Consume all waiting messages, as `nsqfast-spark ingest --available-now` does."""
    words = [
        f"--topic={TOPIC}", f"--channel={CHANNEL}", f"--nsqd-tcp-address={address}", "--available-now",
        f"--spool={folder / 'spool'}", f"--output={folder / 'lake'}", f"--checkpoint={folder / 'checkpoint'}",
    ]  # fmt: skip
    print("ingest: nsqfast-spark ingest " + " ".join(words))
    begun_s = time.monotonic()
    if status := ingest.main(words, spark=spark):
        raise DemoError(f"ingest ended with {status}")
    print(f"ingest: done in {time.monotonic() - begun_s:.1f} s")


def show(spark: Any, lake: Path) -> None:
    """Print what arrived, by hour and by country."""
    orders = spark.read.parquet(str(lake))
    count = orders.count()
    orders.createOrReplaceTempView("orders")
    spark.sql(
        """SELECT topic, date, hour, get_json_object(cast(body AS string), '$.country') AS country,
                  count(*) AS orders, count(DISTINCT id) AS ids,
                  round(sum(get_json_object(cast(body AS string), '$.cents')) / 100) AS revenue
           FROM orders GROUP BY ALL ORDER BY date, hour, country"""
    ).show(truncate=False)
    if count != COUNT:
        raise DemoError(f"{count} of {COUNT} orders arrived")
    print(f"{count:,} of {COUNT:,} orders arrived")


if __name__ == "__main__":
    sys.exit(main())
