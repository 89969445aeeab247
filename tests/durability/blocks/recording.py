"""A mounted file system whose block writes and flushes are logged, and the log, read back."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import mmap
import struct
import subprocess
from typing import TYPE_CHECKING

from durability.blocks import machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from durability.blocks.filesystems import FileSystem

HEADER = struct.Struct("=QQII")


class Kind(enum.IntEnum):
    WRITE = 1
    FLUSH = 2
    ZERO = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One request that the disk has completed; `place` is that of its bytes in the log."""

    time_ns: int
    offset: int
    size: int
    kind: Kind
    place: int


class Log:
    """All that reached the disk, in order."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.entries: list[Entry] = []
        place = 0
        while place + HEADER.size <= len(self._bytes):
            time_ns, offset, size, kind = HEADER.unpack_from(self._bytes, place)
            place += HEADER.size
            self.entries.append(Entry(time_ns, offset, size, Kind(kind), place))
            place += size if kind == Kind.WRITE else 0
        assert place == len(self._bytes), "the log ends within an entry"

    def data(self, entry: Entry) -> bytes:
        if entry.kind == Kind.ZERO:
            return bytes(entry.size)
        return self._bytes[entry.place : entry.place + entry.size]

    def close(self) -> None:
        self._bytes.close()


@dataclasses.dataclass
class Disk:
    """`folder` is the mounted file system; `base` the image before its first mount."""

    file_system: FileSystem
    base: Path
    log: Path
    folder: Path


@contextlib.contextmanager
def _logging(program: Path, image: Path, log: Path, folder: Path) -> Iterator[Path]:
    """The file whose writes and flushes are logged."""
    folder.mkdir(exist_ok=True)
    command = [str(program), str(image), str(log), str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n", "the file system that logs did not start"
        yield folder / "disk"
    finally:
        # It ends when it is no longer mounted.
        machine.unmount(folder)
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def recorded(program: Path, place: Path, file_system: FileSystem) -> Iterator[Disk]:
    """A new file system, mounted; afterwards `log` holds all that it wrote."""
    base, image = place / "base", place / "image"
    file_system.make_on(base)
    subprocess.run(["cp", "--sparse=always", str(base), str(image)], check=True)
    log, folder = place / "log", place / "disk"
    with (
        _logging(program, image, log, place / "fuse") as file,
        machine.mounted_directly(file_system.name, file, folder, file_system.options),
    ):
        yield Disk(file_system, base, log, folder)
    image.unlink()
