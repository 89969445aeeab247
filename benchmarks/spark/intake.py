"""From nsqd to the disk: the receiver, and Go's nsq_to_file beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from nsqfast.spark.spool.segments import list_done, list_receivers, list_segments
from server.implementation import go_tool
from server.usage import cpu_ns
from support.bucket import KEYS, Bucket, MinioBucket, find_minio
from tools.trial import CHANNEL, count_records, fill, post, wait_connected, wait_drained

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from server.broker import Broker
    from spark.sample import Sample

STOP_TIMEOUT_S = 60.0


def receive(broker: Broker, topic: str, folder: Path, count: int, *more: str) -> Sample:
    """Run the receiver as a service, with its default flags but for those."""
    flags = [f"--spool={folder / 'spool'}", f"--topic={topic}", f"--channel={CHANNEL}", *more]
    words = [sys.executable, "-m", "nsqfast.spark.receiver.main", *flags]
    return consume(broker, topic, folder, count, words, count_spooled)


def count_spooled(folder: Path) -> int:
    """Count messages in segments."""
    spool = folder / "spool"
    return sum(
        segment.row_count
        for name in list_receivers(spool)
        for segment in list_segments(spool / name) + list_done(spool / name)
    )


def receive_parquet(broker: Broker, topic: str, folder: Path, count: int, *more: str) -> Sample:
    """As docs/SPARK.md has it for a bucket: with so many in flight that segments can be large."""
    # Of half of them some are finished when nsqd has no more, also in a short run.
    flags = ("--connections=40", f"--max-in-flight={min(100_000, count // 2)}", "--seal-rows=25000")
    return receive(broker, topic, folder, count, "--segment-format=parquet", *flags, *more)


def receive_into_bucket(broker: Broker, topic: str, folder: Path, count: int) -> Sample:
    """Run the receiver into a bucket whose server has the same cores."""
    with MinioBucket(folder / "minio") if find_minio() else Bucket() as bucket:
        bucket.make()
        os.environ.update(KEYS)
        return receive_parquet(broker, topic, folder, count, f"--store={bucket.url}")


def receive_plainly(broker: Broker, topic: str, folder: Path, count: int) -> Sample | None:
    """None without Go's program."""
    program = go_tool("nsq_to_file")
    if program is None:
        return None
    (folder / "lines").mkdir()
    flags = [f"--output-dir={folder / 'lines'}", f"--topic={topic}", f"--channel={CHANNEL}"]
    words = [str(program), "--max-in-flight=2500", *flags]
    return consume(
        broker, topic, folder, count, words, lambda place: count_records(place / "lines")
    )


def consume(
    broker: Broker,
    topic: str,
    folder: Path,
    count: int,
    words: list[str],
    count_stored: Callable[[Path], int],
) -> Sample:
    """Measure from unpausing a channel until it is empty.

    Messages in progress when the program is told to end may go back to nsqd, but none may be missing.
    """
    broker.create(topic, (CHANNEL,))
    post(broker, f"/channel/pause?topic={topic}&channel={CHANNEL}")
    fill(broker.tcp, topic, count)
    log = folder / "tool.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*words, f"--nsqd-tcp-address={broker.tcp}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
    try:
        wait_connected(broker, topic, process, log)
        cpu_before_ns, begun_s = cpu_ns(process.pid), time.monotonic()
        post(broker, f"/channel/unpause?topic={topic}&channel={CHANNEL}")
        done = count - wait_drained(broker, topic, process, log)
        seconds, used_ns = time.monotonic() - begun_s, cpu_ns(process.pid) - cpu_before_ns
        process.send_signal(signal.SIGTERM)
        if status := process.wait(STOP_TIMEOUT_S):
            raise RuntimeError(f"{words}: {status}\n{log.read_text()}")
    finally:
        process.kill()
        process.wait()
    channel = broker.stats(topic)["channels"][0]
    left = channel["depth"] + channel["in_flight_count"]
    if (stored := count_stored(folder)) + left < count:
        raise RuntimeError(f"{words}: {stored} of {count} messages were stored, {left} are left")
    broker.delete(topic)
    return {"rate": done / seconds, "cpu_us": used_ns / 1000 / done}
