"""--history-file: keeps the rings over a restart of nsqadmin.

A zip file (as of numpy.savez), so its parts have checksums: `about.json`, and an array for each block of each ring, the
rows oldest first. It is written beside the old one and replaces it atomically.
"""

import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from nsqfast.nsqadmin.cluster.history_tables import (
    BLOCK,
    HistoryTable,
    Key,
    Mark,
    Ring,
    StoredTable,
)
from nsqfast.nsqadmin.cluster.kept_file import replace_file

VERSION = 1
ABOUT = "about.json"
# While it is written, the loop may write as many rows again, over the oldest ones.
ROWS_LEFT_OUT = 4
POINTS_MAX = 1 << 20
BLOCKS_MAX = 1 << 12


# Possible errors for a damaged file: zipfile and numpy report damage in many ways, and numpy takes an array's header
# for a literal of Python before its checksum is known.
TROUBLE = (
    SyntaxError,
    TypeError,
    tokenize.TokenError,
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
    msgspec.MsgspecError,
)


class HistoryFileError(Exception):
    """The file is damaged, or is something else."""


class _RingAbout(msgspec.Struct):
    step_s: int
    first: int
    last: int
    blocks: int


class _TableAbout(msgspec.Struct):
    columns: tuple[str, ...]
    slots: list[tuple[Key, int]]
    fine: _RingAbout
    coarse: _RingAbout


class _About(msgspec.Struct):
    nsqadmin_history: int
    tables: list[_TableAbout]
    marks: list[tuple[float, str, Key]]


@dataclass(slots=True)
class Snapshot:
    """The data to write; the rings may change meanwhile, so their known rows are named, oldest first."""

    about: _About
    arrays: list[tuple[str, NDArray[Any], NDArray[np.int64] | slice]]


def snapshot(tables: Sequence[HistoryTable], marks: Iterable[Mark]) -> Snapshot:
    """Call this on the loop."""
    table_abouts: list[_TableAbout] = []
    arrays: list[tuple[str, NDArray[Any], NDArray[np.int64] | slice]] = []
    for number, table in enumerate(tables):
        ring_abouts = []
        for name, ring in ((f"{number}.fine", table.fine), (f"{number}.coarse", table.coarse)):
            first = max(ring.first, ring.last - ring.points + 1 + ROWS_LEFT_OUT)
            rows = np.arange(first, ring.last + 1 if ring.last >= 0 else first) % ring.points
            arrays += [(f"{name}.{index}", block, rows) for index, block in enumerate(ring.blocks)]
            if ring.counts is not None:
                arrays.append((f"{name}.counts", ring.counts, rows))
            ring_abouts.append(_RingAbout(ring.step_s, first, ring.last, len(ring.blocks)))
        slots = list(table.slots.items())
        table_abouts.append(_TableAbout(table.columns, slots, *ring_abouts))
        for name, array in ((f"{number}.totals", table.totals), (f"{number}.raw", table.raw)):
            arrays.append((name, array.copy(), slice(None)))
    noted = [(mark.at, mark.text, mark.key) for mark in marks]
    return Snapshot(_About(VERSION, table_abouts, noted), arrays)


def save(taken: Snapshot, path: str) -> None:
    """Call this in a thread; OSError says why it failed."""
    with replace_file(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(ABOUT, msgspec.json.encode(taken.about))
        for name, array, rows in taken.arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, array[rows], allow_pickle=False)


def is_ours(path: str) -> bool:
    """Whether the file does not exist, is empty, or began as one of these files; others must not be overwritten."""
    try:
        with Path(path).open("rb") as stream:
            begin = stream.read(64)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return not begin or (begin[:4] == b"PK\x03\x04" and ABOUT.encode() in begin)


def load(
    path: str, tables: Sequence[HistoryTable], memory_max: int
) -> tuple[list[StoredTable], list[Mark]]:
    """Read these tables and the marks, in a thread. HistoryFileError; FileNotFoundError."""
    try:
        if Path(path).stat().st_size > 2 * memory_max + (1 << 20):
            raise HistoryFileError("it is larger than --history-memory allows")
        with zipfile.ZipFile(path) as archive:
            about = msgspec.json.decode(archive.read(ABOUT), type=_About)
            if about.nsqadmin_history != VERSION or len(about.tables) != len(tables):
                raise HistoryFileError("it is of another version")
            read = [
                _read_table(archive, number, table, said)
                for number, (table, said) in enumerate(zip(tables, about.tables, strict=True))
            ]
    except FileNotFoundError:
        raise
    except TROUBLE as error:
        raise HistoryFileError(str(error) or type(error).__name__) from None
    return read, [Mark(*mark) for mark in about.marks]


def _read_table(
    archive: zipfile.ZipFile, number: int, table: HistoryTable, about: _TableAbout
) -> StoredTable:
    blocks = about.fine.blocks
    capacity = blocks * BLOCK
    slots = dict(about.slots)
    is_sound = (
        about.columns == table.columns
        and blocks == about.coarse.blocks <= BLOCKS_MAX
        and len(slots) == len(about.slots) == len(set(slots.values()))
        and all(0 <= slot < capacity for slot in slots.values())
    )
    if not is_sound:
        raise HistoryFileError("its parts do not fit together")
    fine = _read_ring(archive, f"{number}.fine", table, about.fine)
    coarse = _read_ring(archive, f"{number}.coarse", table, about.coarse)
    totals = _read(archive, f"{number}.totals", (capacity,), np.float64)
    raw = _read(archive, f"{number}.raw", (capacity,), np.float64)
    return StoredTable(slots, fine, coarse, totals, raw)


def _read_ring(archive: zipfile.ZipFile, name: str, table: HistoryTable, about: _RingAbout) -> Ring:
    width, length = len(table.columns), about.last - about.first + 1 if about.last >= 0 else 0
    if about.step_s < 1 or not 0 <= length <= POINTS_MAX:
        raise HistoryFileError("its times are impossible")
    ring = Ring(about.step_s, max(length, 1), width, has_counts=table.has_counts)
    shape = ring.points, BLOCK, width
    ring.add_blocks([np.zeros(shape, np.float32) for _ in range(about.blocks)])
    if length:
        ring.first, ring.last = about.first, about.last
    rows = ring.rows(length)
    for index, block in enumerate(ring.blocks):
        block[rows] = _read(archive, f"{name}.{index}", (length, BLOCK, width), np.float32)
    if ring.counts is not None:
        capacity = about.blocks * BLOCK
        ring.counts[rows] = _read(archive, f"{name}.counts", (length, capacity), np.float64)
    return ring


def _read(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read(1)  # the checksum is verified only at the end
    if array.shape != shape or array.dtype != kind:
        raise HistoryFileError("its parts do not fit together")
    return array
