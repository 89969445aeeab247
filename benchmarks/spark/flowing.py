"""The whole chain: a load, nsqd, the receiver and `nsqfast-spark ingest`, on the same cores."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from nsqfast.client.sync import Producer
from tools.trial import CHANNEL, LINES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from server.broker import Broker
    from spark.sample import Sample

RATE_MAX = 150_000  # more than the required rate
RATE_CALM = 20_000
WARM_UPS = 3
START_TIMEOUT_S = 180.0
LAG_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 90.0
POLL_S = 0.02
WARM_UP_COUNT = 20_000
TICKS = 100  # publishes a second


class Ingest:
    """The job as a user starts it, in a process (and a JVM) of its own."""

    def __init__(self, broker: Broker, topic: str, folder: Path, interval: str) -> None:
        self.output = folder / "out"
        self._commits = folder / "state" / "commits"
        self._log = folder / "ingest.log"
        words = [
            sys.executable, "-m", "nsqfast.spark_jobs.main", "ingest", "--master=local[2]",
            f"--nsqd-tcp-address={broker.tcp}", f"--topic={topic}", f"--channel={CHANNEL}",
            f"--spool={folder / 'spool'}", f"--output={self.output}",
            f"--checkpoint={folder / 'state'}", f"--interval={interval}",
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._delays: dict[int, list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = {}
        self.count = 0
        self.last_s = 0.0  # when the last batch was committed, by the wall clock

    def wait(self, count: int, timeout_s: float) -> None:
        """Wait until so many messages are in Parquet and committed by Spark."""
        deadline_s = time.monotonic() + timeout_s
        while self.count < count:
            self._look()
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{self.count} of {count} messages\n{self._log.read_text()}")
            time.sleep(POLL_S)

    def _look(self) -> None:
        if not self._commits.is_dir():
            return
        for path in self._commits.iterdir():
            if path.name.isdecimal() and int(path.name) not in self._delays:
                self._note(int(path.name), path.stat().st_mtime)

    def _note(self, batch: int, committed_s: float) -> None:
        """Record the delay of its messages: from publishing to the commit of the batch."""
        self._delays[batch] = []
        for stamps_ns in self._stamps(batch):
            self._delays[batch].append(committed_s - stamps_ns / 1e9)
            self.count += len(stamps_ns)
            self.last_s = max(self.last_s, committed_s)

    def _stamps(self, batch: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
        for path in self.output.glob(f"topic=*/date=*/hour=*/batch=*-{batch}/*.parquet"):
            column = pq.ParquetFile(path).read(["timestamp_ns"]).column(0)
            yield column.to_numpy()

    def forget_delays(self) -> None:
        """Ignore what came before."""
        self._delays = {batch: [] for batch in self._delays}

    def median_delay_s(self) -> float:
        """Return that of all messages since."""
        return float(
            np.median(np.concatenate([part for all_ in self._delays.values() for part in all_]))
        )

    def stop(self) -> None:
        """Stop in order."""
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.wait()
        if status:
            raise RuntimeError(f"ingest ended with {status}\n{self._log.read_text()}")

    def kill(self) -> None:
        """Kill it in any state."""
        self._process.kill()
        self._process.wait()


def flow(
    broker: Broker, topic: str, folder: Path, rate: int, interval: str, seconds: int
) -> Sample:
    """Publish `rate` a second for so long. The measured time is from the first message to the last commit."""
    broker.create(topic, (CHANNEL,))
    ingest = Ingest(broker, topic, folder, interval)
    try:
        warm_up(ingest, broker, topic)
        begun_s = time.time()
        count = publish(broker, topic, rate, seconds)
        ingest.wait(WARM_UPS * WARM_UP_COUNT + count, LAG_TIMEOUT_S)
    except BaseException:
        ingest.kill()
        raise
    ingest.stop()
    broker.delete(topic)
    elapsed_s = ingest.last_s - begun_s
    return {"rate": count / elapsed_s, "count": count, "latency_s": ingest.median_delay_s()}


def warm_up(ingest: Ingest, broker: Broker, topic: str) -> None:
    """Let the first batches load classes."""
    with Producer(broker.tcp) as producer:
        for number in range(WARM_UPS):
            for _ in range(WARM_UP_COUNT // len(LINES)):
                producer.publish_many(topic, LINES)
            ingest.wait((number + 1) * WARM_UP_COUNT, START_TIMEOUT_S)
    ingest.forget_delays()


def publish(broker: Broker, topic: str, rate: int, seconds: int) -> int:
    """Publish at an even rate, so many times a second; a late publish does not delay later ones. Return the count."""
    bodies = (LINES * (rate // TICKS // len(LINES) + 1))[: rate // TICKS]
    begun_s = time.monotonic()
    with Producer(broker.tcp) as producer:
        for tick in range(TICKS * seconds):
            time.sleep(max(0.0, begun_s + tick / TICKS - time.monotonic()))
            producer.publish_many(topic, bodies)
    return len(bodies) * TICKS * seconds
