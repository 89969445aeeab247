"""From a file to blocks of plain bytes; gzip and zstd are chains of members (frames), each with its own checksum.

A member that the end of the file cuts off is used as far as it goes. A damaged member yields wrong bytes from the
damage on, until its checksum reveals that. So output is held back until the member ends, and the held part of a damaged
one is dropped: for members that nsq_to_file writes, that is all of it. Reading continues at the next whole member; the
magic bytes of a member can also occur within compressed data.
"""

import os
import sys
import zlib
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

from nsqfast.archives.files import GZIP, ZSTD
from nsqfast.archives.records import Damage, OnDamage

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKED_SIZE = 1 << 16
HELD_SIZE = 4 << 20  # of a member's plain bytes, until its end has been seen
GZIP_WINDOW = 31  # tells zlib to expect gzip's header and checksum


class Block(NamedTuple):
    """Plain bytes; not `is_joined`: bytes between these and the previous ones are lost."""

    data: bytes
    is_joined: bool = True


class Decoder(Protocol):
    """Decodes one member."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...

    def give(self, data: bytes, size_max: int) -> bytes: ...
    @property
    def has_more(self) -> bool: ...


class _Gzip:
    """zlib's object, plus the input that it has not taken yet."""

    magic = b"\x1f\x8b\x08"

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=GZIP_WINDOW)
        self._is_full = False  # zlib may hold back output that did not fit

    def give(self, data: bytes, size_max: int) -> bytes:
        plain = self._zlib.decompress(self._zlib.unconsumed_tail + data, size_max)
        self._is_full = len(plain) == size_max
        return plain

    @property
    def has_more(self) -> bool:
        return self._is_full or bool(self._zlib.unconsumed_tail)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data


class _Zstd:
    magic = b"\x28\xb5\x2f\xfd"

    def __init__(self) -> None:
        self._zstd = zstd.ZstdDecompressor()

    def give(self, data: bytes, size_max: int) -> bytes:
        return self._zstd.decompress(data, size_max)

    @property
    def has_more(self) -> bool:
        return not self._zstd.eof and not self._zstd.needs_input

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def unused_data(self) -> bytes:
        return self._zstd.unused_data


_CODECS: dict[str, type[_Gzip | _Zstd]] = {GZIP: _Gzip, ZSTD: _Zstd}
_ERRORS = (zlib.error, zstd.ZstdError)


class _BrokenError(Exception):
    """A member cannot be decoded further; if it was only cut off, its output so far is right."""

    def __init__(self, text: str, *, is_cut_off: bool = False) -> None:
        super().__init__(text)
        self.is_cut_off = is_cut_off


def plain_blocks(file: BinaryIO, position: int, block_size: int) -> Iterator[Block]:
    """Blocks from that byte on; from a pipe, as much as is available at a time."""
    if position:
        file.seek(position)
    fd = file.fileno()
    while data := os.read(fd, block_size):
        yield Block(data)


def find_end(path: str, file: BinaryIO, packer: str) -> int:
    """Where the last whole member ends; before a damaged one if no whole one follows."""
    return Unpacker(path, file, packer, PACKED_SIZE, lambda _: None).find_end()


class Unpacker:
    """The blocks of a compressed file."""

    def __init__(
        self, path: str, file: BinaryIO, packer: str, block_size: int, on_damage: OnDamage
    ) -> None:
        self._path = path
        self._file = file
        self._codec = _CODECS[packer]
        self._magic = self._codec.magic
        self._packer = packer
        self._block_size = block_size
        self._on_damage = on_damage
        self._kept = b""  # bytes of the file after the member that ended
        self._end = 0  # where the next member begins

    def blocks(self, position: int) -> Iterator[Block]:
        """Blocks from that byte of the plain text on."""
        skip = position
        for data, is_joined in self._members():
            if skip >= len(data) and is_joined:
                skip -= len(data)
            else:
                yield Block(data[skip:], is_joined)
                skip = max(0, skip - len(data))

    def _members(self) -> Iterator[Block]:
        """All members; an empty block that is not joined marks a loss."""
        while True:
            start = self._end
            try:
                for data in self._held_back():
                    yield Block(data)
                if self._end == start:
                    return
            except _BrokenError as error:
                found = self._find_member(start + 1)
                rest = f"read on at byte {found}" if found >= 0 else "there is no more to read"
                self._on_damage(Damage(self._path, f"byte {start} (packed)", f"{error}; {rest}"))
                yield Block(b"", is_joined=False)
                if found < 0:
                    return
                self._seek(found)

    def find_end(self) -> int:
        """See the function."""
        end = 0
        while True:
            try:
                for _ in self._member(self._codec()):
                    pass
            except _BrokenError:
                if self._find_member(self._end + 1) < 0:
                    return end
            if self._end == end:
                return end
            end = self._end

    def _held_back(self) -> Iterator[bytes]:
        """The trustworthy output of the next member."""
        held: deque[bytes] = deque()
        held_size = given_size = 0
        try:
            for data in self._member(self._codec()):
                held.append(data)
                held_size += len(data)
                while held_size - len(held[0]) >= HELD_SIZE:
                    held_size -= len(held[0])
                    given_size += len(held[0])
                    yield held.popleft()
        except _BrokenError as error:
            if error.is_cut_off:
                yield from held
            elif given_size:
                raise _BrokenError(
                    f"{error}; its first {given_size} plain bytes were used, and may be wrong"
                ) from None
            raise
        yield from held

    def _seek(self, position: int) -> None:
        self._file.seek(position)
        self._kept, self._end = b"", position

    def _member(self, decoder: Decoder) -> Iterator[bytes]:
        """The output of one member; nothing at the end of the file."""
        data, self._kept = self._kept or self._file.read(PACKED_SIZE), b""
        if not data:
            return
        try:
            while True:
                if plain := decoder.give(data, self._block_size):
                    yield plain
                if decoder.eof:
                    break
                data = b"" if decoder.has_more else self._file.read(PACKED_SIZE)
                if not data and not decoder.has_more:
                    raise _BrokenError(
                        f"the file ends in the middle of {self._packer} data", is_cut_off=True
                    )
        except _ERRORS as error:
            raise _BrokenError(f"damaged {self._packer} data ({error})") from None
        self._kept = decoder.unused_data
        self._end = self._file.tell() - len(self._kept)

    def _find_member(self, start: int) -> int:
        """Where the next whole member begins, from that byte of the file on; -1: nowhere."""
        while (found := self._find_magic(start)) >= 0:
            self._seek(found)
            try:
                for _ in self._member(self._codec()):
                    pass
            except _BrokenError:
                start = found + 1
            else:
                return found
        return -1

    def _find_magic(self, start: int) -> int:
        self._file.seek(start)
        tail = b""
        position = start
        while data := self._file.read(PACKED_SIZE):
            searched = tail + data
            if (found := searched.find(self._magic)) >= 0:
                return position - len(tail) + found
            position += len(data)
            tail = searched[1 - len(self._magic) :]
        return -1
