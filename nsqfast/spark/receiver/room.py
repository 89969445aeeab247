"""Whether there is room for more: in the spool, whose segments wait for Spark, and on its disk.

The bytes of live segments are counted by listing the spool now and then; segments sealed in between are added.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nsqfast.spark.spool.segments import Segment, list_receivers, list_segments
from nsqfast.tools.shared.program import log

RESUME_PART = 0.8  # of the limit: below that receiving continues
FREE_RESUME_PART = 1.2  # of the required free space
LISTING_REST = 20.0  # the pause before the next count, in multiples of the last one's duration


@dataclass(frozen=True, slots=True)
class Count:
    """The count of a spool at one moment; sizes in bytes."""

    segments: int
    size: int
    free_size: int
    cost_s: float  # processor time of the count


def count_spool(spool: Path) -> Count:
    """Return all receivers' live segments, and the free space of the disk; OSError if that is unknown."""
    began_s = time.thread_time()
    live = [segment for name in list_receivers(spool) for segment in list_segments(spool / name)]
    disk = os.statvfs(spool)
    size = sum(segment.size for segment in live)
    return Count(len(live), size, disk.f_bavail * disk.f_frsize, time.thread_time() - began_s)


def free_floor(spool: Path, wanted_size: int, most_size: int, part: float) -> int:
    """Return how many bytes of the disk stay free: the requested number, or a part of it, but not more than
    `most_size`."""
    if wanted_size:
        return wanted_size
    disk = os.statvfs(spool)
    return min(most_size, int(disk.f_blocks * disk.f_frsize * part))


class Room:
    """`on_change` is called with True when nothing more must be received, and with False when there is room again."""

    def __init__(
        self, size_max: int, free_size_min: int, on_change: Callable[[bool], object]
    ) -> None:
        self.size_max = size_max
        self.free_size_min = free_size_min
        self.segments = 0  # live ones
        self.size = 0
        self.free_size = free_size_min
        self.is_full = False
        self._on_change = on_change
        self._failure: str | None = None
        self._sealed_segments = self._sealed_size = 0  # since the current count began

    @property
    def is_failing(self) -> bool:
        """Whether the disk failed to store a segment."""
        return self._failure is not None

    @property
    def is_disk_low(self) -> bool:
        """Whether the disk has less free space than required."""
        return self.free_size < self.free_size_min

    def begin_count(self) -> None:
        """A count begins; segments sealed from here on are added to it, although it may have seen some of them."""
        self._sealed_segments = self._sealed_size = 0

    def note_count(self, count: Count) -> None:
        """A count has ended."""
        self.segments = count.segments + self._sealed_segments
        self.size = count.size + self._sealed_size
        self.free_size = count.free_size - self._sealed_size
        self._decide()

    def note_sealed(self, segment: Segment) -> None:
        """One more was sealed."""
        for name in ("size", "_sealed_size"):
            setattr(self, name, getattr(self, name) + segment.size)
        self.segments += 1
        self._sealed_segments += 1
        self.free_size -= segment.size
        self._decide()

    def note_failure(self, failure: str | None) -> None:
        """The disk's error while sealing; None: it succeeded."""
        self._failure = failure
        self._decide()

    def _decide(self) -> None:
        reason = self._find_full_reason()
        if bool(reason) == self.is_full:
            return
        self.is_full = bool(reason)
        if reason:
            log.warning("taking nothing more: %s", reason)
        else:
            log.info("there is room again; going on")
        self._on_change(self.is_full)

    def _find_full_reason(self) -> str:
        """Why nothing more must be received; "" = there is room. A full spool must fall below the limit by a margin."""
        size_max = self.size_max * (RESUME_PART if self.is_full else 1.0)
        free_size_min = self.free_size_min * (FREE_RESUME_PART if self.is_full else 1.0)
        if self._failure is not None:
            return f"a segment cannot be written: {self._failure}"
        if self.size >= size_max:
            return f"{self.size} bytes wait for Spark, and --max-spool-bytes is {self.size_max}"
        if self.free_size < free_size_min:
            return f"the disk has {self.free_size} bytes left, and --min-free-bytes is {self.free_size_min}"
        return ""
