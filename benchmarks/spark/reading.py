"""From the disk through Spark: the spool, and text files with the same messages beside it."""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nsqfast.spark import read, stream
from nsqfast.spark.native import SCHEMA as SCHEMA_TEXT
from nsqfast.spark.spool.identity import open_spool
from nsqfast.spark.spool.schema import SCHEMA
from nsqfast.spark.spool.segments import ARROW, PARQUET
from nsqfast.spark.spool.writer import SegmentWriter
from spark.scenario import SIZE
from tools.trial import CHANNEL, LINES

if TYPE_CHECKING:
    from pathlib import Path

    from spark.sample import Sample

TOPIC = "orders"
SEGMENT_ROWS = 10_000
TEXT_FILES = 8
TIMEOUT_S = 300.0


def make_spool(folder: Path, count: int, segment_format: str = ARROW) -> Path:
    """Create a spool as a receiver leaves it; done once, and not read itself."""
    spool = folder / f"spool-{count}-{segment_format}"
    if spool.exists():
        return spool
    open_spool(spool, TOPIC, CHANNEL)
    writer = SegmentWriter.open(spool, "r0", segment_format)
    begun_ns = time.time_ns()
    for first in range(0, count, SEGMENT_ROWS):
        writer.seal([make_rows(first, min(SEGMENT_ROWS, count - first), begun_ns)])
    writer.close()
    return spool


def make_rows(first: int, count: int, begun_ns: int) -> pa.RecordBatch:
    """Make messages of one moment. No two are alike: Spark's own files would have a dictionary of their bodies."""
    numbers = np.arange(first, first + count)
    stamps_ns = begun_ns + numbers * 1000
    ids = [b"%016x" % number for number in numbers.tolist()]
    lines = itertools.islice(itertools.cycle(LINES), count)
    return pa.record_batch(
        [
            pa.repeat(pa.scalar(TOPIC), count),
            pa.repeat(pa.scalar(CHANNEL), count),
            pa.array(ids, pa.binary()).cast(pa.string()),
            pa.array(stamps_ns // 1000, pa.int64()).cast(SCHEMA.field("timestamp").type),
            pa.array(stamps_ns, pa.int64()),
            pa.repeat(pa.scalar(1, pa.int32()), count),
            pa.repeat(pa.scalar("127.0.0.1:4150"), count),
            pa.array(
                [one + line[len(one) :] for one, line in zip(ids, lines, strict=True)], pa.binary()
            ),
        ],
        schema=SCHEMA,
    )


def link_spool(spool: Path, copy: Path) -> Path:
    """Return a copy of the segments, none of them released; hard links cost nothing."""
    for path in spool.rglob("*"):
        target = copy / path.relative_to(spool)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".arrow":
            os.link(path, target)
        elif path.suffix == ".json":
            target.write_bytes(path.read_bytes())
    return copy


def make_lines(folder: Path, count: int, files: int = TEXT_FILES) -> Path:
    """Write the same messages as nsq_to_file does."""
    place = folder / f"lines-{count}-{files}"
    if not place.exists():
        place.mkdir()
        block = b"".join(line + b"\n" for line in LINES)
        size = count // files * (SIZE + 1)
        for number in range(files):
            name = f"{TOPIC}.host-{number:06d}.2026-11-21_{number:02d}.log"
            (place / name).write_bytes((block * (size // len(block) + 1))[:size])
    return place


def read_spool(session: Any, spool: Path, place: Path, sink: str) -> Sample:
    """Run one query that takes all there is; measure from its start to its end."""
    stream = (
        session.readStream.format("nsq")
        .option("subscribe", TOPIC)
        .option("channel", CHANNEL)
        .option("spoolDir", str(link_spool(spool, place / "spool")))
        .option("receiver", "external")
        .load()
    )
    return time_query(stream, place, sink)


def read_natively(session: Any, folder: Path, count: int, place: Path, sink: str) -> Sample:
    """As docs/SPARK.md has it. Nothing is released, so the segments need no copy."""
    session.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", 10_000)
    return time_query(stream(session, make_spool(folder, count, PARQUET)), place, sink)


def read_parquet(session: Any, folder: Path, count: int, place: Path, sink: str) -> Sample:
    """Use Spark's own reader on what Spark has written of the same messages, in as many files."""
    files = folder / f"parquet-{count}"
    if not files.exists():
        messages = read(session, make_spool(folder, count, PARQUET))
        messages.repartition(-(-count // SEGMENT_ROWS)).write.parquet(str(files))
    messages = session.readStream.schema(SCHEMA_TEXT).parquet(str(files))
    return time_query(messages, place, sink)


def read_text(session: Any, lines: Path, place: Path, sink: str) -> Sample:
    """Use Spark's own reader, which knows only the bodies of messages."""
    stream = session.readStream.format("text").option("lineSep", "\n").load(str(lines))
    return time_query(stream, place, sink)


def time_query(stream: Any, place: Path, sink: str) -> Sample:
    writer = stream.writeStream.format(sink).option("checkpointLocation", str(place / "state"))
    if sink != "noop":
        writer = writer.option("path", str(place / "out"))
    begun_s = time.monotonic()
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(TIMEOUT_S):
        query.stop()
        raise RuntimeError(f"the query did not end in {TIMEOUT_S} s")
    seconds = time.monotonic() - begun_s
    count = sum(progress["numInputRows"] for progress in query.recentProgress)
    return {"rate": count / seconds, "count": count}
