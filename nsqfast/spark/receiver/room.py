"""Whether there is room for more: in the spool, whose segments wait for Spark, and on its disk.

The bytes of live segments are counted by listing the spool now and then; what is sealed in between is added.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nsqfast.spark.spool.segments import Segment, list_receivers, list_segments
from nsqfast.tools.shared.program import log

RESUME_PART = 0.8  # of what is allowed: below that it goes on
FREE_RESUME_PART = 1.2  # of what has to be free
LISTING_REST = 20.0  # times as long as a count took, until the next one


@dataclass(frozen=True, slots=True)
class Count:
    """Of a spool, at one moment; sizes in bytes."""

    segments: int
    size: int
    free_size: int
    cost_s: float  # of the processor, to count


def count_spool(spool: Path) -> Count:
    """All receivers' live segments, and what the disk has left; OSError if that cannot be told."""
    began_s = time.thread_time()
    live = [segment for name in list_receivers(spool) for segment in list_segments(spool / name)]
    disk = os.statvfs(spool)
    size = sum(segment.size for segment in live)
    return Count(len(live), size, disk.f_bavail * disk.f_frsize, time.thread_time() - began_s)


def free_floor(spool: Path, wanted_size: int, most_size: int, part: float) -> int:
    """Bytes of the disk that stay free: as many as were asked for, or a part of it, but not more than `most_size`."""
    if wanted_size:
        return wanted_size
    disk = os.statvfs(spool)
    return min(most_size, int(disk.f_blocks * disk.f_frsize * part))


class Room:
    """`on_change` is called with True when nothing more is to be taken, and with False when there is room again."""

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
        self._sealed_segments = self._sealed_size = 0  # since the count that is under way began

    @property
    def is_failing(self) -> bool:
        """Whether the disk did not take what was to be sealed."""
        return self._failure is not None

    @property
    def is_disk_low(self) -> bool:
        """Whether the disk has less left than it should."""
        return self.free_size < self.free_size_min

    def begin_count(self) -> None:
        """A count begins; what is sealed from here on is added to it, though it may have seen some of that."""
        self._sealed_segments = self._sealed_size = 0

    def note_count(self, count: Count) -> None:
        """It is as it was counted."""
        self.segments = count.segments + self._sealed_segments
        self.size = count.size + self._sealed_size
        self.free_size = count.free_size - self._sealed_size
        self._decide()

    def note_sealed(self, segment: Segment) -> None:
        """One more."""
        for name in ("size", "_sealed_size"):
            setattr(self, name, getattr(self, name) + segment.size)
        self.segments += 1
        self._sealed_segments += 1
        self.free_size -= segment.size
        self._decide()

    def note_failure(self, failure: str | None) -> None:
        """What the disk says to what was to be sealed; None: it took it."""
        self._failure = failure
        self._decide()

    def _decide(self) -> None:
        reason = self._reason()
        if bool(reason) == self.is_full:
            return
        self.is_full = bool(reason)
        if reason:
            log.warning("taking nothing more: %s", reason)
        else:
            log.info("there is room again; going on")
        self._on_change(self.is_full)

    def _reason(self) -> str:
        """Why nothing more is to be taken; "" = there is room. What is full has to become emptier than it need be."""
        size_max = self.size_max * (RESUME_PART if self.is_full else 1.0)
        free_size_min = self.free_size_min * (FREE_RESUME_PART if self.is_full else 1.0)
        if self._failure is not None:
            return f"a segment cannot be written: {self._failure}"
        if self.size >= size_max:
            return f"{self.size} bytes wait for Spark, and --max-spool-bytes is {self.size_max}"
        if self.free_size < free_size_min:
            return f"the disk has {self.free_size} bytes left, and --min-free-bytes is {self.free_size_min}"
        return ""
