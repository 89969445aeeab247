"""Sealing: writes messages as a segment, which is on disk once it has its name.

A segment is a Parquet file with checksums, or an Arrow stream that any Arrow reader can read. Behind the latter is a
trailer for our reader: for each batch where it begins, its size, the number of its rows and a checksum, and a checksum
of all that.
"""

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
from zlib_ng import zlib_ng

from nsqfast.program.durable import PRIVATE_FOLDER_MODE, open_private, sync_folder
from nsqfast.spark.spool import parquet, trailer
from nsqfast.spark.spool.identity import RECEIVER, Lock, read_identity
from nsqfast.spark.spool.release import read_released, release_names
from nsqfast.spark.spool.schema import SCHEMAS
from nsqfast.spark.spool.segments import (
    ARROW,
    DONE,
    ENDING,
    PARQUET,
    Segment,
    check_receiver,
    list_done,
    list_segments,
    make_ending,
)
from nsqfast.spark.spool.store import Store

_DRAFT = ".tmp-"
_NUMBERED = re.compile(rf"(\d+)({ENDING})?")
_CHECK_SIZE = 1 << 16  # bytes
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class NotSyncedError(OSError):
    """A reader may see the segment already; a power failure may remove its name, or it is not in the store."""

    def __init__(self, segment: Segment, error: OSError) -> None:
        super().__init__(*error.args)
        self.segment = segment


class SegmentWriter:
    """The only writer of a receiver's folder, from `open` to `close`.

    With a store, segments are released here once they are there: those that are not released have to be stored.
    """

    def __init__(
        self, folder: Path, lock: Lock, number: int, ending: str, store: Store | None
    ) -> None:
        self.folder = folder
        self._store = store
        self._lock = lock
        self.next_number = number
        self._ending = ending

    @classmethod
    def open(
        cls,
        spool: Path,
        receiver: str,
        segment_format: str = ARROW,
        store: Store | None = None,
    ) -> Self:
        """SpoolError if another process has that receiver's folder; OSError if it is not writable."""
        identity = read_identity(spool)
        assert identity is not None, "open_spool comes first"
        ending = make_ending(segment_format, identity.epoch)
        folder = spool / check_receiver(receiver)
        for name in ("", *DONE.values()):
            (folder / name).mkdir(PRIVATE_FOLDER_MODE, exist_ok=True)
        sync_folder(folder)
        sync_folder(spool)
        lock = Lock.take(folder / RECEIVER, f"{folder} belongs to a receiver that runs")
        try:
            for draft in _drafts(folder):
                draft.take_over()
            used = [segment.number for segment in list_segments(folder) + list_done(folder)]
            number = max([read_released(folder), *used]) + 1
            return cls(folder, lock, number, ending, store)
        except BaseException:
            lock.release()
            raise

    def seal(self, batches: Sequence[pa.RecordBatch]) -> Segment:
        """Write those batches, of one of SCHEMAS, as the next segment; it is on disk, and in the store, at the return.

        NotSyncedError: it exists, but its name may not be on disk yet, or it is not in the store; call `sync`. Another
        OSError: it does not exist.
        """
        draft = self.folder / f"{_DRAFT}{self.next_number}{self._ending}"
        try:
            write = _write_parquet if self._ending.endswith(PARQUET) else _write_arrow
            size = write(draft, batches)
            row_count = sum(batch.num_rows for batch in batches)
            segment = Segment(self.folder, self.next_number, row_count, size, self._ending)
            draft.rename(segment.path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        # From here on a reader may have seen it: whatever happens, the number is used and the messages are in it.
        self.next_number += 1
        try:
            self.sync()
        except OSError as error:
            raise NotSyncedError(segment, error) from None
        return segment

    def sync(self) -> None:
        """Sync the names of all sealed segments, and store those that are not; OSError: call it again."""
        sync_folder(self.folder)
        if self._store is not None:
            for segment in list_segments(self.folder):
                self._store.put(segment)
                release_names(self.folder, [segment.name])

    def check(self) -> None:
        """Do what is left of `sync`; OSError if it fails or nothing can be written."""
        self.sync()
        draft = self.folder / f"{_DRAFT}check"
        try:
            with open(draft, "wb", buffering=0, opener=open_private) as file:
                _store(file.fileno(), bytes(_CHECK_SIZE))
                os.fsync(file.fileno())
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process write from here on."""
        self._lock.release()


@dataclass(frozen=True, slots=True)
class _Draft:
    """The unnamed file of a receiver that was killed."""

    path: Path
    folder: Path
    number: int
    ending: str

    def take_over(self) -> None:
        """Give it its name if it is complete, else remove it.

        After a power failure a complete one may have had its name, and a reader may have seen it: then other messages
        must not get this number.
        """
        row_count = self._count_rows() if self.number else None
        if row_count is None:
            self.path.unlink()
            return
        size = self.path.stat().st_size
        segment = Segment(self.folder, self.number, row_count, size, self.ending)
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.rename(segment.path)
        sync_folder(self.folder)

    def _count_rows(self) -> int | None:
        """None unless it is complete."""
        data = pa.py_buffer(self.path.read_bytes())
        if self.ending.endswith(PARQUET):
            return parquet.count_rows(data)
        parts = trailer.unpack(data)
        if not parts:
            return None
        sound = (zlib_ng.crc32(data.slice(part.offset, part.size)) == part.crc for part in parts)
        return sum(part.row_count for part in parts) if all(sound) else None


def _drafts(folder: Path) -> list[_Draft]:
    found = []
    for path in folder.glob(f"{_DRAFT}*"):
        named = _NUMBERED.fullmatch(path.name.removeprefix(_DRAFT))
        # Those of 0.2, which are all of Arrow, have no ending.
        number, ending = (int(named[1]), named[2] or f".{ARROW}") if named else (0, "")
        found.append(_Draft(path, folder, number, ending))
    return found


def _write_arrow(path: Path, batches: Sequence[pa.RecordBatch]) -> int:
    """Return the file's size in bytes; it is on disk."""
    parts: list[trailer.SegmentPart] = []
    schema = SCHEMAS.index(batches[0].schema)
    with open(path, "wb", buffering=0, opener=open_private) as file:
        end = _store(file.fileno(), SCHEMAS[schema].serialize())
        for batch in batches:
            data = batch.serialize()
            crc = zlib_ng.crc32(data)
            parts.append(trailer.SegmentPart(end, data.size, batch.num_rows, crc, schema))
            end += _store(file.fileno(), data)
        end += _store(file.fileno(), _END_OF_STREAM)
        end += _store(file.fileno(), trailer.pack(parts))
        os.fsync(file.fileno())
    return end


def _write_parquet(path: Path, batches: Sequence[pa.RecordBatch]) -> int:
    """As `_write_arrow`."""
    with open(path, "wb", buffering=0, opener=open_private) as file:
        size = _store(file.fileno(), parquet.pack(batches))
        os.fsync(file.fileno())
    return size


def _store(fd: int, data: "pa.Buffer | bytes") -> int:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    return len(memoryview(data))
