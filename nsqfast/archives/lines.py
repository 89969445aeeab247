"""Plain lines: a body and a newline each. A body that contains newlines comes back as several; nobody can tell."""

from collections.abc import Iterable, Iterator

import numpy as np

from nsqfast._ext.protocol.records import split
from nsqfast.archives.records import Column, Damage, Ints, OnDamage, Records
from nsqfast.archives.unpack import Block

NEWLINE = 10
# A file without newlines is not an archive of messages; nsqd takes 1 MiB by default.
RECORD_SIZE_MAX = 256 << 20


class LineCutter:
    """Cuts blocks into whole lines.

    `is_last_whole`: at the end of the file, text without a newline is a record, and not a torn one.
    """

    def __init__(self, path: str, on_damage: OnDamage, *, is_last_whole: bool) -> None:
        self._path = path
        self._on_damage = on_damage
        self._is_last_whole = is_last_whole
        self._parts: list[bytes] = []  # of a line whose end has not come yet
        self._size = 0
        self._is_dropping = False  # skipping the rest of a line that is too long
        self._position = 0  # of the next byte of a block

    def cut(self, blocks: Iterable[Block], position: int) -> Iterator[tuple[bytes, int]]:
        """Yield bytes that end with a newline, and their position; blocks begin at `position`."""
        self._position = position
        for block in blocks:
            if not block.is_joined:
                self._forget()  # the caller has reported the loss
            end = block.data.rfind(b"\n") + 1
            if end:
                begin = self._position - self._size
                whole = b"".join([*self._parts, block.data[:end]])
                if self._is_dropping:
                    cut = whole.index(b"\n") + 1
                    begin, whole, self._is_dropping = begin + cut, whole[cut:], False
                self._forget()
                yield whole, begin
            self._position += len(block.data)
            self._keep(block.data[end:])
        if self._size and not self._is_dropping:
            yield from self._end()

    def _forget(self) -> None:
        self._parts, self._size = [], 0

    def _keep(self, data: bytes) -> None:
        if self._is_dropping or not data:
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size > RECORD_SIZE_MAX:
            self._tell(f"a line of more than {RECORD_SIZE_MAX} bytes")
            self._forget()
            self._is_dropping = True

    def _end(self) -> Iterator[tuple[bytes, int]]:
        if self._is_last_whole:
            yield b"".join([*self._parts, b"\n"]), self._position - self._size
        else:
            self._tell(f"torn: {self._size} bytes without a newline at the end of the file")

    def _tell(self, reason: str) -> None:
        self._on_damage(Damage(self._path, f"byte {self._position - self._size}", reason))


def read_lines(cutter: LineCutter, blocks: Iterable[Block], position: int) -> Iterator[Records]:
    """The records of a file of plain lines."""
    for data, begin in cutter.cut(blocks, position):
        bodies = cut_bodies(data)
        yield Records(bodies, bodies.starts + begin, begin + len(data), "byte")


def cut_bodies(data: bytes) -> Column:
    """The lines of a block, without the empty ones."""
    pieces = split(data, NEWLINE)
    return Column(data, _ints(pieces.starts), _ints(pieces.ends))


def _ints(data: bytes) -> Ints:
    return np.frombuffer(data, np.int64)
