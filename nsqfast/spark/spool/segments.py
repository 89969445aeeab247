"""Segments: their names, and lists of them.

    0000000000000042-r10000-b2600000.arrow

is the 42nd segment of its receiver: 10,000 messages in a file of 2,600,000 bytes. So the names alone tell what a query
may take at once.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nsqfast.spark.spool.identity import SpoolError

DONE = "done"
_NAME = re.compile(r"(\d{16})-r(\d+)-b(\d+)\.arrow")
_RECEIVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Segment:
    """`size` is the file's, in bytes; `folder` the receiver's."""

    folder: Path
    number: int
    row_count: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.number:016d}-r{self.row_count}-b{self.size}.arrow"

    @property
    def path(self) -> Path:
        """Where it is until it is released."""
        return self.folder / self.name

    @property
    def done_path(self) -> Path:
        """Where it is from then on, until its retention ends."""
        return self.folder / DONE / self.name

    def find(self) -> Path | None:
        """Where it is now; None if it does not exist."""
        # In this order: it moves from the first to the second, and never back.
        return next((path for path in (self.path, self.done_path) if path.exists()), None)


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
    return sorted(_segments(folder / DONE, folder), key=lambda segment: segment.number)


def parse_segment(folder: Path, name: str) -> Segment | None:
    """Return the segment of that name in a receiver's folder; None if it is not a segment's name."""
    if found := _NAME.fullmatch(name):
        number, row_count, size = map(int, found.groups())
        return Segment(folder, number, row_count, size)
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
