"""Which folders a crash may leave behind at a moment: what was not synced is kept, dropped, or torn.

kill      all is kept, and the machine goes on: kill -9
all       all is kept, and the machine starts anew
none      only what was synced
side      the side files (acknowledgements, metadata) in full, of the rest what was synced
data      the reverse
random    any subset of the writes and of the names, some of the writes torn at 512 or 4,096 bytes
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from durability.crash.disk import Folder

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from durability.crash.disk import Change, Disk, File, NameChange

KILL, ALL, NONE, SIDE, DATA, RANDOM = "kill", "all", "none", "side", "data", "random"
START = "start"
# The first calls of a start are those that mend what the crash left.
START_CALLS = (1, 1, 1, 2, 3, 5, 8)
DATA_FILE = re.compile(r".+\.diskqueue\.[0-9]{6,}\.dat(\.bad)?|nsqd\.dat(\..*)?")
SECTOR_SIZES = (512, 4096)


def is_side(name: str) -> bool:
    return DATA_FILE.fullmatch(name) is None


@dataclass(slots=True)
class State:
    """A folder's files by name, each with the mtime that it had, and the folders in it."""

    kind: str
    files: dict[str, bytes]
    mtimes_ns: dict[str, int]
    folders: list[str] = field(default_factory=list)
    die_at: int = (
        0  # at this call of a first start; 0: there is one start, and nothing happens to it
    )

    def digest(self) -> bytes:
        """Equal states are opened once."""
        found = hashlib.blake2b(b"%d %d" % (self.kind == KILL, self.die_at))
        found.update(" ".join(sorted(self.folders)).encode())
        for name in sorted(self.files):
            found.update(f"{name} {len(self.files[name])} ".encode())
            found.update(self.files[name])
        return found.digest()

    def build(self, folder: Path) -> None:
        """Into an empty folder."""
        for name in self.folders:
            (folder / name).mkdir(mode=0o700)
        for name, content in self.files.items():
            path = folder / name
            path.write_bytes(content)
            path.chmod(0o600)
            if mtime_ns := self.mtimes_ns[name]:
                os.utime(path, ns=(mtime_ns, mtime_ns))


def state_of(
    disk: Disk,
    kind: str,
    keeps_name: Callable[[NameChange], bool],
    content_of: Callable[[str, File], bytes],
) -> State:
    state = State(kind, {}, {})
    _fill(state, "", disk.root, keeps_name, content_of)
    return state


def _fill(
    state: State,
    prefix: str,
    folder: Folder,
    keeps_name: Callable[[NameChange], bool],
    content_of: Callable[[str, File], bytes],
) -> None:
    names = dict(folder.synced_names)
    for change in with_those_before(folder.pending, keeps_name):
        change.apply(names)
    for name, one in names.items():
        if isinstance(one, Folder):
            state.folders.append(prefix + name)
            _fill(state, f"{prefix}{name}/", one, keeps_name, content_of)
        else:
            state.files[prefix + name] = content_of(prefix + name, one)
            state.mtimes_ns[prefix + name] = one.mtime_ns


def with_those_before(
    changes: list[NameChange], keeps: Callable[[NameChange], bool]
) -> list[NameChange]:
    """Those kept, and all before them that touch one of their names: a name's changes have their order."""
    kept = []
    needed: set[str] = set()
    for change in reversed(changes):
        if keeps(change) or change.names() & needed:
            kept.append(change)
            needed |= change.names()
    return kept[::-1]


def make_state(disk: Disk, kind: str, dice: random.Random) -> State:
    if kind in {KILL, ALL}:
        return state_of(disk, kind, lambda _: True, lambda _, file: bytes(file.content))
    if kind == NONE:
        return state_of(disk, kind, lambda _: False, lambda _, file: bytes(file.synced))
    if kind in {SIDE, DATA}:
        return _by_role(disk, kind)
    if kind == START:
        state = _spoil_tails(disk, dice) if dice.random() < 0.7 else make_state(disk, RANDOM, dice)
        return replace(state, kind=START, die_at=dice.choice(START_CALLS))
    keep_share = dice.choice([0.2, 0.5, 0.8])
    return state_of(
        disk,
        kind,
        lambda _: dice.random() < keep_share,
        lambda _, file: _some(file, keep_share, dice),
    )


def _by_role(disk: Disk, kind: str) -> State:
    def is_kept(name: str) -> bool:
        return is_side(name) == (kind == SIDE)

    return state_of(
        disk,
        kind,
        lambda change: all(map(is_kept, change.names())),
        lambda name, file: bytes(file.content if is_kept(name) else file.synced),
    )


def _spoil_tails(disk: Disk, dice: random.Random) -> State:
    """The side files in full; of the data what was synced, and zeros in place of the rest, or a piece of it."""
    is_zeroed = dice.random() < 0.5

    def content_of(name: str, file: File) -> bytes:
        if is_side(name):
            return bytes(file.content)
        size = len(file.synced)
        if is_zeroed:
            return bytes(file.synced) + bytes(max(0, len(file.content) - size))
        return bytes(file.synced) + bytes(file.content[size : size + dice.randrange(1, 40)])

    return state_of(disk, SIDE, lambda change: all(map(is_side, change.names())), content_of)


def _some(file: File, keep_share: float, dice: random.Random) -> bytes:
    """What was synced, with some of what came since."""
    if not file.pending:
        return bytes(file.synced)
    mode = dice.randrange(5)
    if mode == 0:
        return bytes(file.content)
    if mode == 1:
        return bytes(file.synced)
    content = bytearray(file.synced)
    sector_size = dice.choice(SECTOR_SIZES)
    for change in file.pending:
        if mode == 2 or change.data is None:
            if dice.random() < keep_share:
                change.apply(content)
        else:
            _tear(change, content, sector_size, keep_share, dice)
    # The new length may be on the disk without the data: that part reads as zeros. Or the file is short.
    if dice.random() < 0.5 and len(content) < len(file.content):
        content.extend(bytes(len(file.content) - len(content)))
    return bytes(content)


def _tear(
    change: Change, content: bytearray, sector_size: int, keep_share: float, dice: random.Random
) -> None:
    """Some of the sectors that the write touches get there."""
    assert change.data is not None
    start, end = change.offset, change.offset + len(change.data)
    while start < end:
        stop = min(end, (start // sector_size + 1) * sector_size)
        if dice.random() < keep_share:
            piece = change.data[start - change.offset : stop - change.offset]
            type(change)(change.number, start, piece).apply(content)
        start = stop
