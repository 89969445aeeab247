"""Reads a segment: maps it and checks it batch by batch; those of an Arrow segment are passed on without copying."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from zlib_ng import zlib_ng

from nsqfast.spark.spool import parquet, trailer
from nsqfast.spark.spool.schema import SCHEMA, SCHEMAS, choose_columns
from nsqfast.spark.spool.segments import PARQUET, Segment

OnDamage = Callable[[str], object]


def read_batches(
    segment: Segment, on_damage: OnDamage, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a segment, with SCHEMA or those columns, which may be those of SCHEMA_WITH_DEATHS.

    `on_damage` is told in one line what cannot be read, and how many messages that affects; if it returns, the rest is
    read.
    """
    found = _open(segment, on_damage)
    if found is None:
        return
    path, data = found
    names = columns or SCHEMA.names
    if segment.format == PARQUET:
        yield from parquet.read(
            data, names, lambda text: on_damage(f"segment {path} {text}"), segment.row_count
        )
        return
    parts = trailer.unpack(data)
    batches = (
        _unchecked(path, data, segment, on_damage)
        if parts is None
        else _checked(path, data, parts, on_damage)
    )
    for batch in batches:
        yield choose_columns(batch, names)


def _open(segment: Segment, on_damage: OnDamage) -> tuple[Path, pa.Buffer] | None:
    """Return its path and content; None if `on_damage` was told why it cannot be read."""
    # In this order: it moves from the first to the second, and never back.
    for path in (segment.path, segment.done_path):
        try:
            return path, pa.memory_map(str(path)).read_buffer()
        except FileNotFoundError:
            continue
        except (OSError, pa.ArrowInvalid) as error:
            on_damage(f"segment {path} cannot be read: {error}: {segment.row_count} messages")
            return None
    on_damage(f"segment {segment.path} is not there: {segment.row_count} messages")
    return None


def _checked(
    path: Path, data: pa.Buffer, parts: list[trailer.SegmentPart], on_damage: OnDamage
) -> Iterator[pa.RecordBatch]:
    first = 0
    for part in parts:
        message = data.slice(part.offset, part.size)
        if zlib_ng.crc32(message) == part.crc:
            yield pa.ipc.read_record_batch(message, SCHEMAS[part.schema])
        else:
            on_damage(
                f"segment {path} is damaged at byte {part.offset}: {part.row_count} messages (rows {first} to"
                f" {first + part.row_count - 1}) cannot be read"
            )
        first += part.row_count


def _unchecked(
    path: Path, data: pa.Buffer, segment: Segment, on_damage: OnDamage
) -> Iterator[pa.RecordBatch]:
    """Without the trailer there are no checksums; accept whatever Arrow can decode."""
    row_count = 0
    try:
        for batch in pa.ipc.open_stream(pa.BufferReader(data)):
            _validate(batch)
            row_count += batch.num_rows
            yield batch
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error)
    else:
        reason = "its checksums are gone"
    on_damage(
        f"segment {path} is damaged: {segment.row_count - row_count} of {segment.row_count} messages cannot be read"
        f" ({reason})"
    )


def _validate(batch: pa.RecordBatch) -> None:
    """ArrowInvalid: it is damaged."""
    batch.validate(full=True)
    if batch.schema not in SCHEMAS:
        raise pa.ArrowInvalid(f"its columns are {', '.join(batch.schema.names)}")
