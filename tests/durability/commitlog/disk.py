"""A disk in memory beneath the real ring: what is durable, what a power cut takes, and what goes wrong.

Bytes are durable when a write with O_DSYNC or an fdatasync returned; until then a power cut keeps any of their sectors.
A name is durable after an fsync of its folder; a power cut keeps the first few of the changes behind it. A rename is
one step. Descriptors of another life are unknown.

It answers the calls of `nsq_files` (`_ext/commitlog/files.h`), which `SimulatedFiles` passes on: what it raises as an
OSError is what the ring sees in errno.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

SECTOR = 512
# What cannot be read is unknown as a page: that is what the kernel reads.
PAGE = 4096

# Faults that the caller sees.
EIO, ENOSPC, SHORT, SYNC_EIO, NAME_EIO = "EIO", "ENOSPC", "short write", "fdatasync", "name"
# Faults that nobody sees.
MISDIRECTED, LOST, FLIPPED, UNREADABLE = "misdirected", "lost", "flipped", "unreadable"
FOREIGN = "foreign sectors"
POWER_CUT, KILLED, TORN = "power cut", "killed", "torn write"


class Watcher(Protocol):
    """What is told of a disk's calls."""

    def writing(self, file: File, at: int, data: bytes) -> None: ...

    def wrote(self, file: File, at: int, data: bytes) -> None:
        """The write is durable."""

    def failed(self, file: File, *, is_sync: bool = False) -> None:
        """A write or an fdatasync of it."""


@dataclass(slots=True)
class Faults:
    """Which of them happen, and how often they did."""

    dice: random.Random
    rates: dict[str, float] = field(default_factory=dict)
    calls_left: int = 0  # until the machine stops; 0: it does not
    counts: Counter[str] = field(default_factory=Counter)

    def draw(self, *kinds: str) -> str:
        """One of these, or "" as nearly always."""
        chance = self.dice.random()
        for kind in kinds:
            rate = self.rates.get(kind, 0.0)
            if chance < rate:
                self.counts[kind] += 1
                return kind
            chance -= rate
        return ""

    def stops(self) -> bool:
        self.calls_left -= 1
        return self.calls_left == 0


@dataclass(eq=False, slots=True)
class File:
    """`seen` is what a read finds; `pending` has what of it is not durable. The sets have numbers of sectors."""

    name: str
    durable: bytearray = field(default_factory=bytearray)
    seen: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)
    unreadable: set[int] = field(default_factory=set)

    def store(self, at: int, data: bytes) -> None:
        healed = range(at // SECTOR, -(-(at + len(data)) // SECTOR))
        if self.damaged:
            # Whoever read what is wrong may write it again.
            there = [self.durable[one * SECTOR : (one + 1) * SECTOR] for one in healed]
            put(self.durable, at, data)
            for one, before in zip(healed, there, strict=True):
                if self.durable[one * SECTOR : (one + 1) * SECTOR] != before:
                    self.damaged.discard(one)
        put(self.durable, at, data)
        self.make_readable(at, len(data))

    def make_readable(self, at: int, size: int) -> None:
        if self.unreadable:
            pages = range(at // PAGE, -(-(at + size) // PAGE))
            self.unreadable -= {one for one in self.unreadable if one * SECTOR // PAGE in pages}

    def store_elsewhere(self, at: int, data: bytes) -> None:
        """Reads see it at once, but for what the kernel has yet to write; it keeps nothing that is written directly."""
        data = data[: max(0, len(self.durable) - at)]
        self.store(at, data)
        put(self.seen, at, data)
        for place, part in self.pending:
            put(self.seen, place, part)
        self.damage(at, len(data))

    def sync(self) -> None:
        while self.pending:
            self.store(*self.pending.pop(0))

    def damage(self, at: int, size: int) -> None:
        self.damaged.update(range(at // SECTOR, -(-(at + size) // SECTOR)))


@dataclass(eq=False, slots=True)
class Folder:
    entries: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[tuple[str, File | Folder | None, str]] = field(default_factory=list)

    def change(self, name: str, node: File | Folder | None, removed: str = "") -> None:
        """In one step: put the node there, or remove what is there; `removed` is its old name."""
        apply(self.entries, name, node, removed)
        self.pending.append((name, node, removed))

    def sync(self, count: int | None = None) -> None:
        for change in self.pending[:count]:
            apply(self.durable, *change)
        self.pending.clear()


def apply(
    entries: dict[str, File | Folder], name: str, node: File | Folder | None, removed: str
) -> None:
    entries.pop(removed, None)
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def put(content: bytearray, at: int, data: bytes) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def sectors(at: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Those that the bytes lie in, each with its own."""
    end = at + len(data)
    while at < end:
        border = min(end, at // SECTOR * SECTOR + SECTOR)
        yield at, data[: border - at]
        data, at = data[border - at :], border


class Disk:
    """One machine's, over several lives of a process."""

    def __init__(self, faults: Faults, watcher: Watcher, *, refuses_direct: bool = False) -> None:
        self.faults, self._dice, self._watcher = faults, faults.dice, watcher
        self._refuses_direct = refuses_direct
        self.root = Folder()
        self.is_off = False
        self.seen_errors = 0  # by the caller, in all calls of this process
        self._files: list[File] = []
        self._folders = [self.root]
        self._opened: dict[int, tuple[File | Folder, int]] = {}
        self._next_fd = 3

    # -- calls -------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int) -> int:
        folder, name = self._find_parent(path)
        node = self.root if not name else folder.entries.get(name)
        if node is None and not flags & os.O_CREAT:
            raise self._fail(errno.ENOENT)
        if isinstance(node, File) and flags & os.O_CREAT and flags & os.O_EXCL:
            raise self._fail(errno.EEXIST)
        if flags & os.O_DIRECT and self._refuses_direct:
            raise self._fail(errno.EINVAL)
        if node is None:
            made = File(name)
            self._change(folder, name, made)
            self._files.append(made)
            node = made
        elif self._stops():
            raise self._fail(errno.EIO)
        if isinstance(node, File) and flags & os.O_TRUNC:
            node.durable, node.seen = bytearray(), bytearray()
            node.pending.clear()
        if isinstance(node, File) and flags & os.O_DIRECT:
            # What is read is what the disk has, and what the kernel has yet to write.
            node.seen = bytearray(node.durable)
            for at, data in node.pending:
                put(node.seen, at, data)
        self._next_fd += 1
        self._opened[self._next_fd] = node, flags
        return self._next_fd

    def close(self, fd: int) -> int:
        if self._opened.pop(fd, None) is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return 0

    def pread(self, fd: int, size: int, at: int) -> bytes:
        file, _ = self._file_of(fd)
        if self._stops():
            raise self._fail(errno.EIO)
        data = bytes(memoryview(file.seen)[at : at + size])
        if file.unreadable and not file.unreadable.isdisjoint(
            range(at // SECTOR, -(-(at + len(data)) // SECTOR))
        ):
            raise self._fail(errno.EIO)
        return data

    def pwrite(self, fd: int, data: bytes, at: int, is_aligned: bool) -> int:
        file, flags = self._file_of(fd)
        if flags & os.O_DIRECT and (not is_aligned or at % SECTOR or len(data) % SECTOR):
            raise AssertionError(f"{len(data)} bytes at {at} are not aligned")
        if self.is_off:
            raise self._fail(errno.EIO)
        self._watcher.writing(file, at, data)
        if self._stops():
            self._tear(file, at, data, flags)
            raise self._fail(errno.EIO)
        kind = self.faults.draw(EIO, ENOSPC, SHORT)
        if kind == SHORT:
            self._watcher.failed(file)
            self.seen_errors += 1
            written = self._dice.randrange(len(data) // SECTOR + 1) * SECTOR
            self._write(file, at, data[: min(written, len(data) - 1)], flags)
            return min(written, len(data) - 1)
        if kind:
            self._tear(file, at, data, flags)
            self._watcher.failed(file)
            raise self._fail(errno.EIO if kind == EIO else errno.ENOSPC)
        self._write(file, at, data, flags)
        if flags & os.O_DSYNC:
            self._watcher.wrote(file, at, data)
        return len(data)

    def fdatasync(self, fd: int) -> int:
        file, _ = self._file_of(fd)
        if self._stops():
            raise self._fail(errno.EIO)
        pending = list(file.pending)
        if self.faults.draw(SYNC_EIO):
            # The pages are clean from now on, whatever of them reached the disk.
            file.pending.clear()
            for at, data in pending:
                self._store_some(file, at, data)
            self._watcher.failed(file, is_sync=True)
            raise self._fail(errno.EIO)
        while file.pending:
            self._store(file, *file.pending.pop(0))
        for at, data in pending:
            self._watcher.wrote(file, at, data)
        return 0

    def fsync(self, fd: int) -> int:
        folder, _ = self._opened_as(fd)
        if isinstance(folder, File):
            return self.fdatasync(fd)
        if self._stops():
            raise self._fail(errno.EIO)
        if self.faults.draw(NAME_EIO):
            raise self._fail(errno.EIO)
        folder.sync()
        return 0

    def mkdir(self, path: str) -> int:
        folder, name = self._find_parent(path)
        if name in folder.entries:
            raise self._fail(errno.EEXIST)
        made = Folder()
        self._change(folder, name, made)
        self._folders.append(made)
        return 0

    def rename(self, before: str, after: str) -> int:
        folder, name = self._find_parent(before)
        other, new_name = self._find_parent(after)
        if name not in folder.entries:
            raise self._fail(errno.ENOENT)
        there = other.entries.get(new_name)
        if other is not folder or (isinstance(there, Folder) and there.entries):
            raise self._fail(errno.ENOTEMPTY)
        self._change(folder, new_name, folder.entries[name], name)
        return 0

    def unlink(self, path: str) -> int:
        folder, name = self._find_parent(path)
        if not isinstance(folder.entries.get(name), File):
            raise self._fail(errno.ENOENT if name not in folder.entries else errno.EISDIR)
        self._change(folder, name, None)
        return 0

    def rmdir(self, path: str) -> int:
        folder, name = self._find_parent(path)
        node = folder.entries.get(name)
        if not isinstance(node, Folder):
            raise self._fail(errno.ENOENT if node is None else errno.ENOTDIR)
        if node.entries:
            raise self._fail(errno.ENOTEMPTY)
        self._change(folder, name, None)
        return 0

    def size(self, fd: int) -> int:
        file, _ = self._file_of(fd)
        return len(file.seen)

    # -- crashes and damage ------------------------------------------------------------------------

    def cut_power(self, keeps: int | None = None) -> None:
        """What was not durable is kept (1), lost (0), or any of it; what is left is durable."""
        self.faults.counts[POWER_CUT] += 1
        for folder in self._folders:
            count = len(folder.pending)
            folder.sync(self._dice.randint(0, count) if keeps is None else count * keeps)
            folder.entries = dict(folder.durable)
        for file in self._files:
            pending, file.pending = file.pending, []
            for at, data in pending:
                for place, part in (
                    self._choose(at, data) if keeps is None else [(at, data)] * keeps
                ):
                    file.store(place, part)
            file.seen = bytearray(file.durable)
        self._start()

    def kill(self) -> None:
        """The process ends, the machine goes on."""
        self.faults.counts[KILLED] += 1
        self._start()

    def flip(self, file: File, at: int) -> None:
        """One bit of this byte, or a few of its neighbours too."""
        self.faults.counts[FLIPPED] += 1
        for place in range(at, min(len(file.durable), at + self._dice.choice((1, 1, 1, 8, 100)))):
            bit = 1 << self._dice.randrange(8)
            file.durable[place] ^= bit
            file.seen[place] ^= bit
            file.damage(place, 1)

    def bring_back(self, file: File, at: int, old: bytes) -> None:
        """Zeros that were never written, where a file stood that was removed: its sectors are there still."""
        self.faults.counts[FOREIGN] += 1
        for place, part in sectors(at, old):
            if not any(file.durable[place : place + len(part)]):
                put(file.durable, place, part)
                put(file.seen, place, part)
                file.damage(place, len(part))

    def remove_all(self, path: str) -> None:
        """The folder and what is in it, by an operator."""
        folder, name = self._find_parent(path)
        folder.change(name, None)
        folder.sync()

    def make_unreadable(self, file: File, at: int) -> None:
        self.faults.counts[UNREADABLE] += 1
        start = at // PAGE * PAGE
        file.damage(start, PAGE)
        file.unreadable.update(range(start // SECTOR, (start + PAGE) // SECTOR))

    def make_parents(self, path: str) -> None:
        folder = self.root
        for name in path.strip("/").split("/")[:-1]:
            made = Folder()
            folder.change(name, made)
            folder.sync()
            self._folders.append(made)
            folder = made

    def files(self, path: str) -> dict[str, File]:
        """By name, those of the folder; none if it does not exist."""
        folder, name = self._find_parent(path)
        node = folder.entries.get(name)
        entries = node.entries if isinstance(node, Folder) else {}
        return {name: one for name, one in entries.items() if isinstance(one, File)}

    def _start(self) -> None:
        self._opened.clear()
        self.is_off = False
        self.faults.calls_left = 0

    # -- within a call -----------------------------------------------------------------------------

    def _fail(self, number: int) -> OSError:
        if number != errno.ENOENT:
            self.seen_errors += 1
        return OSError(number, os.strerror(number))

    def _stops(self) -> bool:
        """Whether the machine is off, or goes off in this call."""
        self.is_off = self.is_off or self.faults.stops()
        return self.is_off

    def _opened_as(self, fd: int) -> tuple[File | Folder, int]:
        if fd not in self._opened:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._opened[fd]

    def _file_of(self, fd: int) -> tuple[File, int]:
        node, flags = self._opened_as(fd)
        if isinstance(node, Folder):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        return node, flags

    def _find_parent(self, path: str) -> tuple[Folder, str]:
        *parents, name = path.strip("/").split("/")
        folder = self.root
        for one in parents:
            node = folder.entries.get(one)
            if not isinstance(node, Folder):
                raise self._fail(errno.ENOENT)
            folder = node
        return folder, name

    def _change(
        self, folder: Folder, name: str, node: File | Folder | None, removed: str = ""
    ) -> None:
        was_off = self.is_off
        stops = self._stops()
        if was_off or (not stops and self.faults.draw(NAME_EIO)):
            raise self._fail(errno.EIO)
        if not stops or self._dice.random() < 0.5:
            folder.change(name, node, removed)
        if stops:
            raise self._fail(errno.EIO)

    def _write(self, file: File, at: int, data: bytes, flags: int) -> None:
        put(file.seen, at, data)
        if flags & os.O_DIRECT:
            file.sync()  # the kernel writes its own pages first
        if flags & os.O_DSYNC:
            self._store(file, at, data)
        elif data:
            file.pending.append((at, data))
            file.make_readable(at, len(data))

    def _tear(self, file: File, at: int, data: bytes, flags: int) -> None:
        """A write that does not end well: any of its sectors got there."""
        if flags & os.O_DSYNC:
            self._store_some(file, at, data)
            # A larger file has zeros where nothing was written.
            put(file.seen, at, bytes(file.durable[at : at + len(data)]))
        else:
            for place, part in self._choose(at, data):
                put(file.seen, place, part)
                file.pending.append((place, part))

    def _store_some(self, file: File, at: int, data: bytes) -> None:
        for place, part in self._choose(at, data):
            file.store(place, part)

    def _choose(self, at: int, data: bytes) -> list[tuple[int, bytes]]:
        """All of its sectors, none, the first few, or any."""
        parts = list(sectors(at, data))
        way = self._dice.randrange(5)
        if way == 0 or not parts:
            return parts
        if way == 1:
            return []
        self.faults.counts[TORN] += 1
        if way == 2:
            return parts[: self._dice.randrange(len(parts))]
        share = self._dice.random()
        return [part for part in parts if self._dice.random() < share]

    def _store(self, file: File, at: int, data: bytes) -> None:
        """Where it belongs, but for a sector that a fault takes."""
        kind = self.faults.draw(MISDIRECTED, LOST)
        if not kind or not data:
            file.store(at, data)
            return
        place, part = self._dice.choice(list(sectors(at, data)))
        before = bytes(file.durable[place : place + len(part)])
        file.store(at, data)
        put(file.durable, place, before + bytes(len(part) - len(before)))
        put(file.seen, place, before + bytes(len(part) - len(before)))
        file.damage(place, len(part))
        if kind == MISDIRECTED:
            self._land_elsewhere(file, place, part)

    def _land_elsewhere(self, file: File, place: int, part: bytes) -> None:
        other = self._dice.choice(self._files)
        at = self._dice.randrange(len(other.durable) // SECTOR + 1) * SECTOR
        if (other, at) != (file, place):
            other.store_elsewhere(at, part)
