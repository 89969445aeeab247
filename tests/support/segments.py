"""Spools that no receiver filled: messages by their numbers, in segments of a given length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from nsqfast.spark.spool.identity import open_spool
from nsqfast.spark.spool.schema import SCHEMA
from nsqfast.spark.spool.segments import ARROW
from nsqfast.spark.spool.writer import SegmentWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nsqfast.spark.spool.segments import Segment

TOPIC = "orders"
CHANNEL = "spark"
FIRST_NS = 1_700_000_000_000_000_000


def make_batch(first: int, row_count: int, body_size: int = 0) -> pa.RecordBatch:
    """Messages `first` and so on; each has its number as id, body and nanoseconds of its timestamp."""
    numbers = range(first, first + row_count)
    columns = {
        "topic": [TOPIC] * row_count,
        "channel": [CHANNEL] * row_count,
        "id": [f"{number:016x}" for number in numbers],
        "timestamp": pa.array(
            [(FIRST_NS + number) // 1000 for number in numbers], pa.timestamp("us", tz="UTC")
        ),
        "timestamp_ns": [FIRST_NS + number for number in numbers],
        "attempts": pa.array([1] * row_count, pa.int32()),
        "nsqd": ["127.0.0.1:4150"] * row_count,
        "body": [b"%d" % number + b"." * body_size for number in numbers],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def make_spool(spool: Path) -> None:
    open_spool(spool, TOPIC, CHANNEL)


def seal(
    spool: Path,
    row_counts: Sequence[int],
    receiver: str = "r0",
    first: int = 0,
    segment_format: str = ARROW,
) -> list[Segment]:
    """A segment for each of these, of messages `first` and so on, as the receiver's next ones."""
    make_spool(spool)
    writer = SegmentWriter.open(spool, receiver, segment_format)
    try:
        segments = []
        for row_count in row_counts:
            segments.append(writer.seal([make_batch(first, row_count)]))
            first += row_count
        return segments
    finally:
        writer.close()


def damage(segment: Segment) -> None:
    """One byte within the first batch is another one."""
    path = segment.find()
    assert path is not None
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
