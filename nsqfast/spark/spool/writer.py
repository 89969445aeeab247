"""Sealing: writes messages as a segment, which is on disk once it has its name.

A segment is an Arrow stream that any Arrow reader can read. Behind it is a trailer for our reader: for each batch where
it begins, its size, the number of its rows and a checksum, and a checksum of all that.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
from zlib_ng import zlib_ng

from nsqfast.spark.spool import trailer
from nsqfast.spark.spool.locks import RECEIVER, Lock
from nsqfast.spark.spool.release import read_released
from nsqfast.spark.spool.schema import SCHEMA
from nsqfast.spark.spool.segments import (
    DONE,
    Segment,
    check_receiver,
    list_done,
    list_segments,
)
from nsqfast.tools.shared.durable import PRIVATE_FOLDER_MODE, open_private, sync_folder

_DRAFT = ".tmp-"
_CHECK_SIZE = 1 << 16  # bytes
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class NotSyncedError(OSError):
    """A reader may see the segment already; a power failure may remove its name."""

    def __init__(self, segment: Segment, error: OSError) -> None:
        super().__init__(error.errno, error.strerror, str(segment.folder))
        self.segment = segment


class SegmentWriter:
    """The only writer of a receiver's folder, from `open` to `close`."""

    def __init__(self, folder: Path, lock: Lock, number: int) -> None:
        self.folder = folder
        self._lock = lock
        self.next_number = number

    @classmethod
    def open(cls, spool: Path, receiver: str) -> Self:
        """SpoolError if another process has that receiver's folder; OSError if it is not writable."""
        folder = spool / check_receiver(receiver)
        folder.mkdir(PRIVATE_FOLDER_MODE, exist_ok=True)
        (folder / DONE).mkdir(PRIVATE_FOLDER_MODE, exist_ok=True)
        sync_folder(folder)
        sync_folder(spool)
        lock = Lock.take(folder / RECEIVER, f"{folder} belongs to a receiver that runs")
        try:
            for draft in _drafts(folder):
                draft.take_over()
            used = [segment.number for segment in list_segments(folder) + list_done(folder)]
            return cls(folder, lock, max([read_released(folder), *used]) + 1)
        except BaseException:
            lock.release()
            raise

    def seal(self, batches: Sequence[pa.RecordBatch]) -> Segment:
        """Write those batches, of SCHEMA, as the next segment; it is on disk when this returns.

        NotSyncedError: it exists, but its name may not be on disk yet; call `sync`. Another OSError: it does not exist.
        """
        draft = self.folder / f"{_DRAFT}{self.next_number}"
        try:
            size = _write(draft, batches)
            row_count = sum(batch.num_rows for batch in batches)
            segment = Segment(self.folder, self.next_number, row_count, size)
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
        """Sync the names of all sealed segments; OSError: call it again."""
        sync_folder(self.folder)

    def check(self) -> None:
        """OSError if nothing can be written."""
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

    def take_over(self) -> None:
        """Give it its name if it is complete, else remove it.

        After a power failure a complete one may have had its name, and a reader may have seen it: then other messages
        must not get this number.
        """
        parts = _read_whole(self.path) if self.number else None
        if parts is None:
            self.path.unlink()
            return
        row_count = sum(part.row_count for part in parts)
        segment = Segment(self.folder, self.number, row_count, self.path.stat().st_size)
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.rename(segment.path)
        sync_folder(self.folder)


def _drafts(folder: Path) -> list[_Draft]:
    found = []
    for path in folder.glob(f"{_DRAFT}*"):
        number = path.name.removeprefix(_DRAFT)
        found.append(_Draft(path, folder, int(number) if number.isdecimal() else 0))
    return found


def _read_whole(path: Path) -> list[trailer.Part] | None:
    """Return the parts of a file; None unless it is complete."""
    data = pa.py_buffer(path.read_bytes())
    parts = trailer.unpack(data)
    if parts is None:
        return None
    sound = (zlib_ng.crc32(data.slice(part.offset, part.size)) == part.crc for part in parts)
    return parts if parts and all(sound) else None


def _write(path: Path, batches: Sequence[pa.RecordBatch]) -> int:
    """Return the file's size in bytes; it is on disk."""
    parts: list[trailer.Part] = []
    with open(path, "wb", buffering=0, opener=open_private) as file:
        end = _store(file.fileno(), SCHEMA.serialize())
        for batch in batches:
            data = batch.serialize()
            parts.append(trailer.Part(end, data.size, batch.num_rows, zlib_ng.crc32(data)))
            end += _store(file.fileno(), data)
        end += _store(file.fileno(), _END_OF_STREAM)
        end += _store(file.fileno(), trailer.pack(parts))
        os.fsync(file.fileno())
    return end


def _store(fd: int, data: "pa.Buffer | bytes") -> int:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    return len(memoryview(data))
