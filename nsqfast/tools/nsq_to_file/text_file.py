"""A file of lines, plain or compressed, that always ends with a whole record as far as we can ensure it."""

import os
from pathlib import Path

from nsqfast.archives.unfinished import lock_writer
from nsqfast.tools.nsq_to_file.folders import remove_file
from nsqfast.tools.nsq_to_file.packing import Pack
from nsqfast.tools.shared.program import log

MEMBER_SIZE_MAX = 1 << 20  # bytes compressed at a time


class TextFile:
    """`size` is the previous size plus everything written since, before compression."""

    def __init__(self, path: Path, fd: int, pack: Pack | None) -> None:
        self.path = path
        self._fd = fd
        lock_writer(fd)
        self._pack = pack
        self._end = os.fstat(fd).st_size  # of the last whole record, or member
        self.size = self._end
        self.stored_size = 0  # bytes written by us, compressed
        self._gathered: list[bytes] = []
        self._gathered_size = 0

    def write(self, block: bytes) -> None:
        """Write whole records; a plain file has them at once."""
        self.size += len(block)
        if self._pack is None:
            self._store(block)
            return
        self._gathered.append(block)
        self._gathered_size += len(block)
        if self._gathered_size >= MEMBER_SIZE_MAX:
            self._end_member(self._pack)

    def sync(self) -> None:
        """Return when everything written is on disk and readable."""
        if self._pack is not None and self._gathered:
            self._end_member(self._pack)
        os.fdatasync(self._fd)

    def close(self) -> None:
        """The same, and close the file. A compressed file without records is one empty member."""
        if self._pack is not None and self._end == 0 and not self._gathered:
            self._end_member(self._pack)
        self.sync()
        os.close(self._fd)

    def forget(self) -> None:
        """It has another name by now."""
        remove_file(self.path)

    def abandon(self) -> None:
        """Give up after an error, without another attempt at unsynced data."""
        os.close(self._fd)

    def _end_member(self, pack: Pack) -> None:
        member = pack(b"".join(self._gathered))
        self._gathered.clear()
        self._gathered_size = 0
        self._store(member)

    def _store(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            self._cut(len(data) - len(rest))
            raise
        self._end += len(data)
        self.stored_size += len(data)

    def _cut(self, torn_size: int) -> None:
        """Remove a partially written record, unless somebody else writes to this file as well."""
        try:
            if torn_size and os.fstat(self._fd).st_size == self._end + torn_size:
                os.ftruncate(self._fd, self._end)
        except OSError as error:
            log.warning("%s: %s; its last record is torn", self.path, error.strerror)
