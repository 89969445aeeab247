"""Parquet and Arrow files: whole when they appear, and their messages on disk long before.

Neither can be read before its end is written, and an end for each sync would make a file of each 200 messages. So a
file in progress is two:

    NAME.rows   what came, as an Arrow stream; synced as a text file is, after which its messages are finished
    NAME.part   the file itself, as far as groups of rows are full; nobody relies on it

At the end NAME.part is completed, synced, and linked to its final name, and only when that is on disk both others go.
A NAME.rows that is there at a start belongs to a run that was killed. It is read up to the last whole batch, which is
at least all that was finished, and becomes the file that it was to be. One that a living process holds is left alone.
"""

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from nsqfast.tools.nsq_to_file.archive import Archive
from nsqfast.tools.nsq_to_file.columns import SCHEMA, Piece
from nsqfast.tools.nsq_to_file.folders import create_file, remove_file
from nsqfast.tools.nsq_to_file.naming import Naming
from nsqfast.tools.shared.durable import sync_folder
from nsqfast.tools.shared.program import log

ROWS = ".rows"
PART = ".part"
GROUP_SIZE = 32 << 20  # bytes of bodies in a group of rows, and as much in memory for each topic
ROWS_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """`format` is parquet or arrow; `compression` none, gzip or zstd."""

    format: str
    compression: str
    level: int

    def open(self, path: Path) -> Any:
        """A writer of a new file, or over an old one."""
        codec = None if self.compression == "none" else self.compression
        if self.format == "arrow":
            packed = pa.Codec(codec, compression_level=self.level) if codec else None
            options = pa.ipc.IpcWriteOptions(compression=packed)
            return pa.ipc.new_file(path, SCHEMA, options=options)
        return pq.ParquetWriter(
            path,
            SCHEMA,
            compression=codec or "NONE",
            compression_level=self.level if codec else None,
            # What is the same in all rows; in bodies it is looked for in vain.
            use_dictionary=["topic", "nsqd"],
            write_statistics=["timestamp_ns", "attempts"],
        )


class ColumnFile:
    """`path` is NAME; once it is closed, the one of the whole file. `size` is what the bodies would take as lines."""

    def __init__(self, path: Path, layout: Layout, rows: "RowsFile | None" = None) -> None:
        if rows is None and os.path.lexists(path):
            raise FileExistsError(path)
        self.path = path
        self.size = 0
        self._rows = rows or RowsFile.create(_beside(path, ROWS))
        self._part = _beside(path, PART)
        self._layout = layout
        self._writer: Any = None  # until a group is full: many files are smaller
        self._group: list[pa.RecordBatch] = []
        self._group_count = self._group_size = 0

    @property
    def stored_size(self) -> int:
        """Bytes that were written to be safe; the file itself may be smaller."""
        return self._rows.end

    def write(self, piece: Piece) -> None:
        """The next rows."""
        self._rows.append(piece.rows)
        self.add(piece.rows, piece.size)

    def add(self, rows: pa.RecordBatch, size: int) -> None:
        """To the file itself, not to what makes them safe."""
        self.size += size
        self._group.append(rows)
        self._group_count += rows.num_rows
        self._group_size += size
        if self._group_size >= GROUP_SIZE or self._group_count >= ROWS_MAX:
            self._end_group()

    def _end_group(self) -> None:
        if self._writer is None:
            self._part.unlink(missing_ok=True)
            self._writer = self._layout.open(self._part)
        table = pa.Table.from_batches(self._group, SCHEMA).combine_chunks()
        self._group = []
        self._group_count = self._group_size = 0
        if table.num_rows:
            self._writer.write_table(table)

    def sync(self) -> None:
        """The rows are on disk when this returns; the file is not readable yet."""
        self._rows.sync()

    def close(self) -> None:
        """The file is whole and on disk when this returns, but not under its name."""
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
        """It has its name. In this order: a part whose rows are gone is known to be a second name."""
        self._rows.remove()
        remove_file(self._part)

    def abandon(self) -> None:
        """What was synced stays in NAME.rows for the next start."""
        writer, self._writer = self._writer, None
        if isinstance(writer, pq.ParquetWriter):
            writer.is_open = False  # or it tries to write its end when it is collected
        self._part.unlink(missing_ok=True)
        self._rows.close()


def recover_files(archive: Archive, naming: Naming, work_dir: str, layout: Layout) -> None:
    """Finish what runs that were killed left of this topic's files in the work folder."""
    for rows_path in sorted(Path(work_dir).rglob(f"*{ROWS}")):
        path = rows_path.with_name(rows_path.name.removesuffix(ROWS))
        name = path.relative_to(work_dir).as_posix()
        if not naming.has(name) or (rows := RowsFile.take_over(rows_path)) is None:
            continue
        log.warning("%s was left behind; its messages are put into their file", rows_path)
        _complete(archive, path, name, rows, layout)


def _complete(archive: Archive, path: Path, name: str, rows: "RowsFile", layout: Layout) -> None:
    part = _beside(path, PART)
    if part.exists() and part.stat().st_nlink > 1:
        # It got its name; only its second name and the rows were still to be removed.
        rows.remove()
        remove_file(part)
        return
    file = ColumnFile(path, layout, rows)
    for batch in rows.batches():
        file.add(batch, batch.nbytes)
    archive.recover(file, name)


class RowsFile:
    """An Arrow stream that grows; one process has it, and locks it."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self.end = 0  # of the last whole batch

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new one; FileExistsError if the name is taken."""
        rows = cls(path, create_file(path))
        fcntl.flock(rows._fd, fcntl.LOCK_EX)
        rows._store(SCHEMA.serialize())
        return rows

    @classmethod
    def take_over(cls, path: Path) -> Self | None:
        """One that was left behind; None if somebody still has it."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return cls(path, fd)

    def append(self, rows: pa.RecordBatch) -> None:
        """One batch."""
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

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All whole ones. What is torn was never synced, and none of it finished."""
        count = 0
        try:
            with pa.memory_map(str(self.path)) as file:
                for rows in pa.ipc.open_stream(file):
                    yield rows
                    count += 1
        except (pa.ArrowInvalid, OSError) as error:
            log.warning("%s is torn behind %d batches: %s", self.path, count, error)

    def sync(self) -> None:
        """All batches are on disk when this returns."""
        os.fdatasync(self._fd)

    def remove(self) -> None:
        """Its rows are safe elsewhere."""
        remove_file(self.path)
        self.close()

    def close(self) -> None:
        """Let go of the lock."""
        os.close(self._fd)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
