"""Segments: their names, and lists of them.

    0000000000000042-r10000-b2600000.arrow
    0000000000000043-r10000-b2100000-1f0c9a7e.parquet

are the 42nd and 43rd segment of their receiver, each of 10,000 messages, in files of 2,600,000 and 2,100,000 bytes. So
the names alone tell what a query may take at once. That of a Parquet segment has the begin of the spool's epoch: Spark
takes no file twice, and knows files by their names, so none of a new spool may be called as one of a removed spool was.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nsqfast.spark.spool.identity import SpoolError

ARROW, PARQUET = FORMATS = "arrow", "parquet"
# Where released segments are. Spark lists every folder below that of a stream, but those that begin with "_".
DONE = {ARROW: "done", PARQUET: "_done"}
ENDING = r"\.arrow|-[0-9a-f]{8}\.parquet"
_NAME = re.compile(rf"(\d{{16}})-r(\d+)-b(\d+)({ENDING})")
_RECEIVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Segment:
    """`size` is the file's, in bytes; `folder` the receiver's."""

    folder: Path
    number: int
    row_count: int
    size: int
    ending: str = f".{ARROW}"  # of the file's name

    @property
    def format(self) -> str:
        return self.ending.rpartition(".")[2]

    @property
    def name(self) -> str:
        return f"{self.number:016d}-r{self.row_count}-b{self.size}{self.ending}"

    @property
    def path(self) -> Path:
        """Where it is until it is released."""
        return self.folder / self.name

    @property
    def done_path(self) -> Path:
        """Where it is from then on, until its retention ends."""
        return self.folder / DONE[self.format] / self.name

    def sealed_ns(self) -> int:
        """When it was written; 0 if it does not exist, or cannot be looked at, which its reader reports."""
        for path in (self.path, self.done_path):
            with contextlib.suppress(OSError):
                return path.stat().st_mtime_ns
        return 0

    def find(self) -> Path | None:
        """Where it is now; None if it does not exist."""
        # In this order: it moves from the first to the second, and never back.
        return next((path for path in (self.path, self.done_path) if path.exists()), None)


def make_ending(segment_format: str, epoch: str) -> str:
    """Return how the names of a spool's segments of that format end."""
    return f".{ARROW}" if segment_format == ARROW else f"-{epoch[:8]}.{PARQUET}"


def check_receiver(name: str) -> str:
    """Return the name of a receiver and its folder if it is valid, else SpoolError."""
    if not _RECEIVER.fullmatch(name):
        raise SpoolError(
            f"{name!r} is no name for a receiver: 1 to 64 letters, digits, - _ . (a letter or digit first)"
        )
    return name


def list_receivers(spool: Path) -> list[str]:
    """Return the receivers that ever wrote into it, sorted by name."""
    with os.scandir(spool) as entries:
        return sorted(
            entry.name for entry in entries if entry.is_dir() and _RECEIVER.fullmatch(entry.name)
        )


def list_segments(folder: Path) -> list[Segment]:
    """Return the segments of one receiver that were not released, in order of their numbers."""
    return sorted(_segments(folder, folder), key=lambda segment: segment.number)


def list_done(folder: Path) -> list[Segment]:
    """Return the released ones that still exist."""
    found = [segment for name in DONE.values() for segment in _segments(folder / name, folder)]
    return sorted(found, key=lambda segment: segment.number)


def parse_segment(folder: Path, name: str) -> Segment | None:
    """Return the segment of that name in a receiver's folder; None if it is not a segment's name."""
    if found := _NAME.fullmatch(name):
        number, row_count, size = map(int, found.groups()[:3])
        return Segment(folder, number, row_count, size, found[4])
    return None


def _segments(place: Path, folder: Path) -> Iterator[Segment]:
    try:
        entries = os.scandir(place)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if segment := parse_segment(folder, entry.name):
                yield segment
