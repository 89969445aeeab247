"""Parquet and Arrow files: complete when they appear, with their messages on disk long before.

Neither format is readable before its footer is written, and a footer for each sync would make a file of each 200
messages. So a file in progress consists of two:

    NAME.rows   the messages as an Arrow stream; synced like a text file, after which its messages are finished
    NAME.part   the file itself, with the full row groups so far; nothing relies on it

At the end NAME.part is completed, synced, and linked to its final name, and both others are removed only when that is
on disk. A NAME.rows found at a start belongs to a killed run. It is read up to the last whole batch, which covers at
least all finished messages, and converted to the intended file. One that a living process has locked is left alone.
Bodies, offsets, times and attempts of a record batch share the memory of the batch that the client took.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nsqfast.archives.files import PART, ROWS, is_written
from nsqfast.archives.tables import death_type, id_column
from nsqfast.client.batch import ArrayBatch
from nsqfast.client.deaths import Deaths
from nsqfast.program.durable import sync_folder
from nsqfast.tools.nsq_to_file.archive import Archive, MakePieces
from nsqfast.tools.nsq_to_file.folders import create_file, open_own, remove_file
from nsqfast.tools.shared.program import log

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("timestamp_ns", pa.int64(), nullable=False),
        pa.field("attempts", pa.uint16(), nullable=False),
        pa.field("nsqd", pa.string(), nullable=False),
        pa.field("body", pa.large_binary(), nullable=False),
    ]
)
DEATH = death_type()
SCHEMA_WITH_DEATHS = SCHEMA.append(pa.field("death", DEATH))


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows; `size` is the size of their bodies as lines."""

    rows: pa.RecordBatch
    size: int


class ColumnPieces:
    """The rows of one batch, without copying their bodies."""

    def __init__(
        self, rows: pa.RecordBatch, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> None:
        self._rows = rows
        self._ends = offsets + np.arange(len(offsets))
        self.count = rows.num_rows
        self.next = 0

    def take(self, size_max: int) -> Piece:
        """Take the next rows, up to the one that exceeds this size."""
        begin = int(self._ends[self.next])
        within = int(np.searchsorted(self._ends, begin + size_max, side="right"))
        last = min(within, self.count)
        piece = Piece(self._rows.slice(self.next, last - self.next), int(self._ends[last]) - begin)
        self.next = last
        return piece


def column_pieces(topic: str) -> MakePieces:
    """Convert each batch to the columns of SCHEMA, or SCHEMA_WITH_DEATHS."""

    def make(batch: ArrayBatch, deaths: Deaths | None = None) -> ColumnPieces:
        count = len(batch)
        columns = [
            pa.repeat(pa.scalar(topic), count),
            id_column(batch.taken.identities),
            _numbers(pa.int64(), batch.taken.timestamps, count),
            _numbers(pa.uint16(), batch.taken.attempts, count),
            _addresses(batch.nsqd, batch.taken.sources, count),
            pa.Array.from_buffers(
                pa.large_binary(),
                count,
                [None, pa.py_buffer(batch.taken.offsets), pa.py_buffer(batch.bodies)],
                null_count=0,
            ),
        ]
        schema = SCHEMA
        if deaths is not None:
            schema = SCHEMA_WITH_DEATHS
            columns.append(pa.array(deaths, DEATH))
        return ColumnPieces(pa.RecordBatch.from_arrays(columns, schema=schema), batch.offsets)

    return make


def _numbers(kind: pa.DataType, numbers: bytes, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(numbers)], null_count=0)


def _addresses(nsqd: Sequence[str], sources: bytes, count: int) -> pa.Array:
    if len(nsqd) == 1:
        return pa.repeat(pa.scalar(nsqd[0]), count)
    return pa.array(nsqd, pa.string()).take(_numbers(pa.uint16(), sources, count))


GROUP_SIZE = 32 << 20  # bytes of bodies in a row group, and as much in memory for each topic
ROWS_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """`format` is parquet or arrow; `compression` none, gzip or zstd."""

    format: str
    compression: str
    level: int
    schema: pa.Schema = SCHEMA

    def open(self, path: Path) -> Any:
        """Open a writer over an empty file."""
        codec = None if self.compression == "none" else self.compression
        if self.format == "arrow":
            packed = pa.Codec(codec, compression_level=self.level) if codec else None
            options = pa.ipc.IpcWriteOptions(compression=packed)
            return pa.ipc.new_file(path, self.schema, options=options)
        return pq.ParquetWriter(
            path,
            self.schema,
            compression=codec or "NONE",
            compression_level=self.level if codec else None,
            # Columns with many equal values; for bodies a dictionary would not help.
            use_dictionary=["topic", "nsqd"],
            write_statistics=["timestamp_ns", "attempts"],
        )


class ColumnFile:
    """`path` is NAME, and after closing that of the complete file. `size` is the size of the bodies as lines."""

    def __init__(self, path: Path, layout: Layout, rows: "RowsFile | None" = None) -> None:
        if rows is None and os.path.lexists(path):
            raise FileExistsError(path)
        self.path = path
        self.size = 0
        self._rows = rows or RowsFile.create(_beside(path, ROWS), layout.schema)
        self._part = _beside(path, PART)
        self._layout = layout
        self._writer: Any = None  # created when a group is full: many files are smaller
        self._group: list[pa.RecordBatch] = []
        self._group_count = self._group_size = 0

    @property
    def stored_size(self) -> int:
        """Bytes written for safety; the file itself may be smaller."""
        return self._rows.end

    def write(self, piece: Piece) -> None:
        """Write the next rows."""
        self._rows.append(piece.rows)
        self.add(piece.rows, piece.size)

    def add(self, rows: pa.RecordBatch, size: int) -> None:
        """Add rows to the file itself, not to the safety copy."""
        self.size += size
        self._group.append(rows)
        self._group_count += rows.num_rows
        self._group_size += size
        if self._group_size >= GROUP_SIZE or self._group_count >= ROWS_MAX:
            self._end_group()

    def _end_group(self) -> None:
        if self._writer is None:
            self._part.unlink(missing_ok=True)
            os.close(create_file(self._part))  # with our mode, and nobody else's
            self._writer = self._layout.open(self._part)
        table = pa.Table.from_batches(self._group, self._layout.schema).combine_chunks()
        self._group = []
        self._group_count = self._group_size = 0
        if table.num_rows:
            self._writer.write_table(table)

    def sync(self) -> None:
        """Return when the rows are on disk; the file is not readable yet."""
        self._rows.sync()

    def close(self) -> None:
        """Return when the file is complete and on disk, but not under its name."""
        self._rows.sync()
        self._end_group()
        self._writer.close()
        fd = os.open(self._part, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_folder(self._part.parent)
        self.path = self._part

    def forget(self) -> None:
        """It has its name. Removing in this order means that a part without rows is recognised as a second name."""
        self._rows.remove()
        remove_file(self._part)

    def abandon(self) -> None:
        """Leave the synced rows in NAME.rows for the next start."""
        writer, self._writer = self._writer, None
        if isinstance(writer, pq.ParquetWriter):
            writer.is_open = False  # otherwise it tries to write its footer when it is collected
        self._part.unlink(missing_ok=True)
        self._rows.close()


def recover_rows(archive: Archive, work_dir: Path, name: str, layout: Layout) -> None:
    """Complete the file of that name, which a killed run left there, unless another process writes it."""
    path = work_dir / name
    rows, part = RowsFile.take_over(_beside(path, ROWS)), _beside(path, PART)
    if rows is None:
        return
    log.warning("%s was left behind; its messages are put into their file", rows.path)
    if part.exists() and part.stat().st_nlink > 1:
        # It had its final name already; only the second name and the rows are left to remove.
        rows.remove()
        remove_file(part)
        return
    file = ColumnFile(path, replace(layout, schema=rows.schema() or layout.schema), rows)
    for batch in rows.batches():
        file.add(batch, batch.nbytes)
    archive.recover(file, name)


class RowsFile:
    """A growing Arrow stream, locked by one process."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self.end = 0  # of the last whole batch

    @classmethod
    def create(cls, path: Path, schema: pa.Schema) -> Self:
        """A new one; FileExistsError if the name is taken."""
        rows = cls(path, create_file(path))
        fcntl.flock(rows._fd, fcntl.LOCK_EX)
        rows._store(schema.serialize())
        return rows

    @classmethod
    def take_over(cls, path: Path) -> Self | None:
        """Take over one that was left behind; None if another process still has it."""
        fd = open_own(path, os.O_RDWR)
        if is_written(fd):
            os.close(fd)
            return None
        return cls(path, fd)

    def append(self, rows: pa.RecordBatch) -> None:
        """Append one batch."""
        self._store(rows.serialize())

    def _store(self, data: pa.Buffer) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, self.end)
            raise
        self.end += data.size

    def schema(self) -> pa.Schema | None:
        """That of its run, which may have had other flags; None where it is torn."""
        try:
            with pa.memory_map(str(self.path)) as file:
                return pa.ipc.open_stream(file).schema
        except (pa.ArrowInvalid, OSError):
            return None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all whole batches. A torn one was never synced, and none of it finished."""
        count = 0
        try:
            with pa.memory_map(str(self.path)) as file:
                for rows in pa.ipc.open_stream(file):
                    yield rows
                    count += 1
        except (pa.ArrowInvalid, OSError) as error:
            log.warning("%s is torn behind %d batches: %s", self.path, count, error)

    def sync(self) -> None:
        """Return when all batches are on disk."""
        os.fdatasync(self._fd)

    def remove(self) -> None:
        """Remove it: its rows are safe elsewhere."""
        remove_file(self.path)
        self.close()

    def close(self) -> None:
        """Release the lock."""
        os.close(self._fd)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
