"""A folder as a disk has it: what is synced of each file and of the names, and what has changed since.

A sync makes durable what was there when it began: of a file its content, of the folder its names. Nothing else is
durable, whatever a particular file system may give on top; `ext4_names` has an fsync of a new file keep its name too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from durability.crash import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from durability.crash.log import Call

O_TRUNC = 0o1000


class Change(NamedTuple):
    """Of a file: bytes at an offset, or (data None) a new size, which never shrinks it when `is_growth`."""

    number: int
    offset: int
    data: bytes | None
    is_growth: bool = False

    def apply(self, content: bytearray) -> None:
        if self.data is not None:
            missing = self.offset - len(content)
            if missing > 0:
                content.extend(bytes(missing))
            content[self.offset : self.offset + len(self.data)] = self.data
        elif self.offset > len(content):
            content.extend(bytes(self.offset - len(content)))
        elif not self.is_growth:
            del content[self.offset :]


class NameChange(NamedTuple):
    """`added` is (name, file), `removed` a name; a rename is both in one step."""

    number: int
    removed: str
    added: tuple[str, File] | None

    def names(self) -> set[str]:
        names = {self.removed} if self.removed else set()
        return names | {self.added[0]} if self.added else names

    def apply(self, names: dict[str, File]) -> None:
        file = names.pop(self.removed, None) if self.removed else None
        del file
        if self.added:
            names[self.added[0]] = self.added[1]


@dataclass(eq=False, slots=True)
class File:
    inode: int
    mtime_ns: int = 0
    synced: bytearray = field(default_factory=bytearray)
    content: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)


class Disk:
    """Calls go in by `apply`, one after the other; states are read between them."""

    def __init__(self, *, ext4_names: bool = False) -> None:
        self.ext4_names = ext4_names
        self.names: dict[str, File] = {}
        self.synced_names: dict[str, File] = {}
        self.pending_names: list[NameChange] = []
        self.files: dict[int, File] = {}  # by inode number, removed ones too
        self.number = 0
        self._sync_began: dict[tuple[int, int], int] = {}  # (thread, inode) → number
        self._handlers: dict[str, Callable[[Call], bool]] = {
            log.OPENED: self._open,
            log.WRITTEN: self._write,
            log.STORED: self._write,
            log.CUT: self._cut,
            log.ALLOCATED: self._allocate,
            log.SYNC_BEGAN: self._begin_sync,
            log.SYNC_ENDED: self._end_sync,
            log.RENAMED: self._rename,
            log.UNLINKED: self._unlink,
            log.LINKED: self._link,
        }

    def apply(self, call: Call) -> bool:
        """Whether anything changed that a crash could show."""
        self.number += 1
        return self._handlers[call.kind](call)

    def _change(self, call: Call, offset: int, data: bytes | None, is_growth: bool = False) -> bool:
        file = self.files[call.inode]
        change = Change(self.number, offset, data, is_growth)
        file.pending.append(change)
        change.apply(file.content)
        if call.mtime_ns:
            file.mtime_ns = call.mtime_ns
        return True

    def _name(self, removed: str, added: tuple[str, File] | None) -> bool:
        change = NameChange(self.number, removed, added)
        self.pending_names.append(change)
        change.apply(self.names)
        return True

    def _open(self, call: Call) -> bool:
        if call.b:
            file = self.files[call.inode] = File(call.inode, call.mtime_ns)
            return self._name("", (call.name, file))
        if call.a & O_TRUNC and self.files[call.inode].content:
            return self._change(call, 0, None)
        return False

    def _write(self, call: Call) -> bool:
        return self._change(call, call.a, call.data)

    def _cut(self, call: Call) -> bool:
        return self._change(call, call.a, None)

    def _allocate(self, call: Call) -> bool:
        return self._change(call, call.a + call.b, None, is_growth=True)

    def _rename(self, call: Call) -> bool:
        if not call.name or not call.other:
            raise ValueError(f"a rename in or out of the folder: {call}")
        return self._name(call.name, (call.other, self.names[call.name]))

    def _unlink(self, call: Call) -> bool:
        return self._name(call.name, None)

    def _link(self, call: Call) -> bool:
        return self._name("", (call.other, self.names[call.name]))

    # -- durability

    def _begin_sync(self, call: Call) -> bool:
        self._sync_began[call.thread, call.inode] = self.number
        return False

    def _end_sync(self, call: Call) -> bool:
        end = self._sync_began.pop((call.thread, call.inode))
        if call.inode == 0:
            for file in self.files.values():
                self._sync_file(file, end)
            self._sync_names(end, None)
        elif call.inode in self.files:
            file = self.files[call.inode]
            self._sync_file(file, end)
            if self.ext4_names:
                self._sync_names(end, file)
        else:
            self._sync_names(end, None)
        return True

    def _sync_file(self, file: File, end: int) -> None:
        count = sum(change.number < end for change in file.pending)
        for change in file.pending[:count]:
            change.apply(file.synced)
        del file.pending[:count]

    def _sync_names(self, end: int, file: File | None) -> None:
        """All of them; with a file only where it is named, but then all that were changed before as well."""
        count = sum(change.number < end for change in self.pending_names)
        if file is not None:
            mine = [
                number
                for number, change in enumerate(self.pending_names[:count])
                if change.added and change.added[1] is file
            ]
            count = mine[-1] + 1 if mine else 0
        for change in self.pending_names[:count]:
            change.apply(self.synced_names)
        del self.pending_names[:count]
