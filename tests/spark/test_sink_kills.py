"""kill -9 of all below a stream that publishes: nothing is missing, and only a batch that was hit is there twice."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from support.drain import address_of, drain, message_count
from support.server import Server, start_nsqd
from support.spark_home import JVM_FLAGS, JVM_S_MAX
from support.tools import Tool
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]

TOPIC = "orders"
DURABLE = ("--mem-queue-size=0", "--sync-every=1")
ROUNDS = 3
PART = 5000  # rows of a batch
# One publish of a few rows at a time, so that a batch takes long enough to be hit.
DRIVER = f"""
import sys
from pyspark.sql import SparkSession
import nsqfast.spark
folder, address = sys.argv[1:]
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    .config("spark.executor.extraJavaOptions", "{JVM_FLAGS}").getOrCreate()
)
nsqfast.spark.register(spark)
lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(folder + "/in")
writer = lines.withColumnRenamed("value", "body").writeStream.format("nsq").option("topic", "{TOPIC}")
writer = writer.option("nsqdTcpAddresses", address).option("maxBatchRows", 25).option("window", 1)
writer = writer.option("checkpointLocation", folder + "/checkpoint").trigger(processingTime="100 milliseconds")
writer.start().awaitTermination()
"""


class Publishing:
    """The stream, whose batches are files of PART numbers, and the nsqd that it publishes to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("in", "nsqd"):
            (folder / name).mkdir()
        self.files = 0
        self.broker = self.start_broker()
        self.driver = self.start_driver()

    def start_broker(self, *flags: str) -> Server:
        return start_nsqd("nsqfast", self.folder / "nsqd", *DURABLE, *flags)

    def start_driver(self) -> Tool:
        return Tool([sys.executable, "-c", DRIVER, str(self.folder), address_of(self.broker)])

    def add_file(self) -> None:
        first = self.files * PART
        path = self.folder / f"{self.files:04d}.txt"
        path.write_text("".join(f"{number}\n" for number in range(first, first + PART)))
        path.rename(self.folder / "in" / path.name)
        self.files += 1

    def wait_for(self, is_so: Callable[[], object]) -> None:
        def is_seen() -> object:
            assert self.driver.process.poll() is None, self.driver.text
            return is_so()

        eventually(is_seen, JVM_S_MAX)

    def wait_committed(self) -> None:
        """A batch is done when Spark has noted it."""
        path = self.folder / "checkpoint" / "commits" / str(self.files - 1)
        self.wait_for(path.exists)

    def kill(self, victim: str) -> None:
        if victim == "nsqd":
            address = address_of(self.broker)
            self.broker.kill()
            self.broker = self.start_broker(f"--tcp-address={address}")
        elif victim == "driver":
            self.driver.kill_all()
            self.driver = self.start_driver()
        else:
            self.kill_below(victim)

    def kill_below(self, victim: str) -> None:
        """The executors, or their workers, which are forks of a daemon of each."""
        for executor in psutil.Process(self.driver.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # many live no longer than a task
                if "ExecutorBackend" in " ".join(executor.cmdline()):
                    workers = [one for daemon in executor.children() for one in daemon.children()]
                    for process in workers if victim == "worker" else [executor]:
                        process.kill()


def test_everything_is_killed_in_turn(tmp_path: Path, tell: Callable[[str], object]) -> None:
    """Each victim in the middle of a batch; the batch after it is left alone."""
    publishing = Publishing(tmp_path)
    hit = set()
    try:
        for _ in range(ROUNDS):
            for victim in ("nsqd", "worker", "executor", "driver"):
                tell(f"{publishing.files} batches, then {victim} is killed")
                before = message_count(publishing.broker, TOPIC)
                hit.add(publishing.files)
                publishing.add_file()
                publishing.wait_for(
                    lambda before=before: message_count(publishing.broker, TOPIC) > before
                )
                publishing.kill(victim)
                publishing.wait_committed()
                publishing.add_file()
                publishing.wait_committed()
    finally:
        publishing.driver.kill_all()
        print(publishing.driver.text)
    with publishing.broker:
        found = list(map(int, drain(publishing.broker, TOPIC)))
    assert len(set(range(publishing.files * PART)) - set(found)) == 0, "missing"
    once = set()
    twice = {number // PART for number in found if number in once or once.add(number)}
    tell(f"{len(found) - len(once)} are there twice, of {len(twice)} batches")
    assert twice <= hit
