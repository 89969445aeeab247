"""The records of any archive from a position on."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from nsqfast.archives.files import ARROW, JSONL, PARQUET, Archive
from nsqfast.archives.lines import LineCutter, read_jsonl, read_lines
from nsqfast.archives.records import Damage, OnDamage, Records
from nsqfast.archives.tables import TableFile
from nsqfast.archives.unpack import Block, Unpacker, plain_blocks
from nsqfast.wire.gotext import os_error

BLOCK_SIZE = 1 << 20


@dataclass(slots=True)
class Reader:
    """The records of an archive; `read_size` is how much of its file has been read."""

    records: Iterator[Records]
    _read_size: Callable[[], int]

    @property
    def read_size(self) -> int:
        """In bytes of the file."""
        return self._read_size()


@contextlib.contextmanager
def open_archive(
    archive: Archive,
    on_damage: OnDamage,
    *,
    position: int = 0,
    block_size: int = BLOCK_SIZE,
    is_last_whole: bool = False,
    has_all: bool = False,
) -> Iterator[Reader]:
    """Its records from `position` on: a value of `Records.end`, or 0.

    `block_size` is the approximate number of bytes of bodies per block. `is_last_whole`: see LineCutter; always true
    for stdin. `has_all`: including attempts and nsqd, if the file has them. An error during reading ends it, and is
    reported as damage; OSError: the file cannot be opened.
    """
    if archive.format in {PARQUET, ARROW}:
        table = TableFile(archive.path, block_size, on_damage, has_all=has_all)
        read = table.read_parquet if archive.format == PARQUET else table.read_arrow
        yield Reader(read(position), lambda: int(table.read_share * archive.size))
        return
    file: BinaryIO = sys.stdin.buffer if archive.is_stdin else open(archive.path, "rb", buffering=0)  # noqa: PTH123, SIM115
    with contextlib.nullcontext() if archive.is_stdin else file:
        blocks = _blocks(archive, file, position, block_size, on_damage)
        cutter = LineCutter(
            archive.path, on_damage, is_last_whole=is_last_whole or archive.is_stdin
        )
        if archive.format == JSONL:
            records = read_jsonl(archive.path, on_damage, cutter, blocks, position, has_all=has_all)
        else:
            records = read_lines(cutter, blocks, position)
        yield Reader(records, lambda: _offset(file))


def _blocks(
    archive: Archive, file: BinaryIO, position: int, block_size: int, on_damage: OnDamage
) -> Iterator[Block]:
    try:
        if archive.packer:
            unpacker = Unpacker(archive.path, file, archive.packer, block_size, on_damage)
            yield from unpacker.blocks(position)
        else:
            yield from plain_blocks(file, position, block_size)
    except OSError as error:
        place = f"byte {_offset(file)} of the file"
        on_damage(Damage(archive.path, place, f"{os_error(error)}; the rest was not read"))
        yield Block(b"", is_joined=False)


def _offset(file: BinaryIO) -> int:
    """How far it has been read; 0 for a pipe."""
    try:
        return os.lseek(file.fileno(), 0, os.SEEK_CUR)
    except OSError:
        return 0
