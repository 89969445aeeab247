"""A folder as a disk has it: what is synced of each file and of the names, and what has changed since.

A sync makes durable what was there when it began: of a file its content, of the folder its names. Nothing else is
durable, whatever a particular file system may give on top; `ext4_names` has an fsync of a new file keep its name too.
A write to a file opened with O_DSYNC is pending from its begin to its end, and durable then. A folder in the folder has
names of its own, which its own fsync makes durable; "a/b" is b in a.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from durability.crash import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from durability.crash.log import Call

O_TRUNC = 0o1000


class Change(NamedTuple):
    """Of a file: bytes at an offset, or (data None) a new size, which never shrinks it when `is_growth`."""

    number: int
    offset: int
    data: bytes | None
    is_growth: bool = False

    def overlaps(self, other: Change) -> bool:
        if self.data is None or other.data is None:
            return True
        return self.offset < other.offset + len(other.data) and other.offset < self.offset + len(
            self.data
        )

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
    """`added` is (name, what it names), `removed` a name; a rename is both in one step. All are of one folder."""

    number: int
    removed: str
    added: tuple[str, File | Folder] | None

    def names(self) -> set[str]:
        names = {self.removed} if self.removed else set()
        return names | {self.added[0]} if self.added else names

    def apply(self, names: dict[str, File | Folder]) -> None:
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


@dataclass(eq=False, slots=True)
class Folder:
    inode: int
    names: dict[str, File | Folder] = field(default_factory=dict)
    synced_names: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[NameChange] = field(default_factory=list)

    def add(self, change: NameChange) -> None:
        self.pending.append(change)
        change.apply(self.names)

    def sync(self, end: int, file: File | None) -> None:
        """All of them; with a file only where it is named, but then all that were changed before as well."""
        count = sum(change.number < end for change in self.pending)
        if file is not None:
            mine = [
                number
                for number, change in enumerate(self.pending[:count])
                if change.added and change.added[1] is file
            ]
            count = mine[-1] + 1 if mine else 0
        for change in self.pending[:count]:
            change.apply(self.synced_names)
        del self.pending[:count]

    def files(self, prefix: str = "") -> Iterator[tuple[str, File]]:
        """As they are now, by name, with those in folders."""
        for name, one in self.names.items():
            if isinstance(one, Folder):
                yield from one.files(f"{prefix}{name}/")
            else:
                yield prefix + name, one


class Disk:
    """Calls go in by `apply`, one after the other; states are read between them."""

    def __init__(self, *, ext4_names: bool = False) -> None:
        self.ext4_names = ext4_names
        self.root = Folder(0)
        self.files: dict[int, File] = {}  # by inode number, removed ones too
        self.folders: dict[int, Folder] = {}  # likewise; of the root nobody tells the number
        self.number = 0
        self._sync_began: dict[tuple[int, int], int] = {}  # (thread, inode) → number
        self._writing: dict[tuple[int, int], Change] = {}  # likewise, to files opened with O_DSYNC
        self._handlers: dict[str, Callable[[Call], bool]] = {
            log.OPENED: self._open,
            log.WRITTEN: self._write,
            log.STORED: self._write,
            log.CUT: self._cut,
            log.ALLOCATED: self._allocate,
            log.SYNC_BEGAN: self._begin_sync,
            log.SYNC_ENDED: self._end_sync,
            log.SYNC_WRITE_BEGAN: self._begin_sync_write,
            log.SYNC_WRITE_ENDED: self._end_sync_write,
            log.RENAMED: self._rename,
            log.UNLINKED: self._unlink,
            log.LINKED: self._link,
            log.FOLDER_MADE: self._make_folder,
            log.FOLDER_REMOVED: self._unlink,
        }

    def apply(self, call: Call) -> bool:
        """Whether anything changed that a crash could show."""
        self.number += 1
        return self._handlers[call.kind](call)

    def files_now(self) -> dict[str, File]:
        return dict(self.root.files())

    def under_way(self, file: File) -> list[Change]:
        """Writes to it that have begun and not ended: a kill may leave them undone."""
        return [change for change in self._writing.values() if change in file.pending]

    def _change(self, call: Call, offset: int, data: bytes | None, is_growth: bool = False) -> bool:
        file = self.files[call.inode]
        change = Change(self.number, offset, data, is_growth)
        file.pending.append(change)
        change.apply(file.content)
        if call.mtime_ns:
            file.mtime_ns = call.mtime_ns
        return True

    def _place(self, name: str) -> tuple[Folder, str]:
        """Whose name that is, and the name there."""
        folder_name, slash, leaf = name.partition("/")
        if not slash:
            return self.root, name
        folder = self.root.names[folder_name]
        assert isinstance(folder, Folder)
        return folder, leaf

    def _name(self, removed: str, added: tuple[str, File | Folder] | None) -> bool:
        folder, leaf = self._place(removed or (added[0] if added else ""))
        there = None
        if added:
            other_folder, other_leaf = self._place(added[0])
            if other_folder is not folder:
                raise ValueError(f"from one folder to another: {removed} {added[0]}")
            there = other_leaf, added[1]
        folder.add(NameChange(self.number, leaf if removed else "", there))
        return True

    def _named(self, name: str) -> File | Folder:
        folder, leaf = self._place(name)
        return folder.names[leaf]

    def _open(self, call: Call) -> bool:
        if call.b:
            file = self.files[call.inode] = File(call.inode, call.mtime_ns)
            self.folders.pop(call.inode, None)
            return self._name("", (call.name, file))
        if call.a & O_TRUNC and self.files[call.inode].content:
            return self._change(call, 0, None)
        return False

    def _make_folder(self, call: Call) -> bool:
        folder = self.folders[call.inode] = Folder(call.inode)
        self.files.pop(call.inode, None)
        return self._name("", (call.name, folder))

    def _write(self, call: Call) -> bool:
        return self._change(call, call.a, call.data)

    def _cut(self, call: Call) -> bool:
        return self._change(call, call.a, None)

    def _allocate(self, call: Call) -> bool:
        return self._change(call, call.a + call.b, None, is_growth=True)

    def _rename(self, call: Call) -> bool:
        if not call.name or not call.other:
            raise ValueError(f"a rename in or out of the folder: {call}")
        return self._name(call.name, (call.other, self._named(call.name)))

    def _unlink(self, call: Call) -> bool:
        return self._name(call.name, None)

    def _link(self, call: Call) -> bool:
        return self._name("", (call.other, self._named(call.name)))

    # -- durability

    def _begin_sync(self, call: Call) -> bool:
        self._sync_began[call.thread, call.inode] = self.number
        return False

    def _end_sync(self, call: Call) -> bool:
        end = self._sync_began.pop((call.thread, call.inode))
        if call.inode == 0:
            for file in self.files.values():
                self._sync_file(file, end)
            for folder in (self.root, *self.folders.values()):
                folder.sync(end, None)
        elif call.inode in self.files:
            file = self.files[call.inode]
            self._sync_file(file, end)
            if self.ext4_names:
                for folder in (self.root, *self.folders.values()):
                    folder.sync(end, file)
        else:
            self.folders.get(call.inode, self.root).sync(end, None)
        return True

    def _sync_file(self, file: File, end: int) -> None:
        count = sum(change.number < end for change in file.pending)
        for change in file.pending[:count]:
            change.apply(file.synced)
        del file.pending[:count]

    def _begin_sync_write(self, call: Call) -> bool:
        self._write(call)
        self._writing[call.thread, call.inode] = self.files[call.inode].pending[-1]
        return True

    def _end_sync_write(self, call: Call) -> bool:
        """That write alone is durable; one before it to the same bytes would have to be synced by the kernel first."""
        file = self.files[call.inode]
        change = self._writing.pop((call.thread, call.inode))
        at = file.pending.index(change) if change in file.pending else -1
        if at < 0:
            return False  # a sync of the whole file began after it, and has ended
        if any(older.overlaps(change) for older in file.pending[:at]):
            raise ValueError(f"a write with O_DSYNC over bytes that are not synced: {call}")
        del file.pending[at]
        change.apply(file.synced)
        return True
