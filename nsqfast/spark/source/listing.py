"""Lists the segments: in every trigger, but reads from the disk only what has changed."""

import os
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from nsqfast.spark.spool.identity import SpoolError
from nsqfast.spark.spool.release import read_released
from nsqfast.spark.spool.segments import (
    Segment,
    list_done,
    list_receivers,
    list_segments,
    parse_segment,
)
from nsqfast.wire.gotext import os_error

# A folder's modification time has a coarse clock: it misses changes in the tick in which the folder was read.
CLOCK_TICK_NS = 2_000_000_000
NS_PER_S = 1_000_000_000

_number = attrgetter("number")


def measure_lag(waiting: Sequence[Segment]) -> dict[str, float]:
    """Return how many segments wait, their messages and bytes, and for how long the oldest has waited.

    Those of a receiver are in order.
    """
    now_ns = time.time_ns()
    oldest = {segment.folder: segment for segment in reversed(waiting)}
    sealed_ns = min((one.sealed_ns() or now_ns for one in oldest.values()), default=now_ns)
    return {
        "segments": len(waiting),
        "rows": sum(segment.row_count for segment in waiting),
        "bytes": sum(segment.size for segment in waiting),
        "age_s": round(max(0, now_ns - sealed_ns) / NS_PER_S, 3),
    }


@dataclass(slots=True)
class _Folder:
    """The folder of one receiver when it was last read; `changed_ns` is -1 while it is not reliable."""

    changed_ns: int = -1
    by_name: dict[str, Segment | None] = field(default_factory=dict)  # None: not a segment
    live: list[Segment] = field(default_factory=list)
    released: int = 0

    def take_names(self, path: Path, names: set[str]) -> None:
        """Set its names; those that it had before are not parsed again."""
        gone = self.by_name.keys() - names
        fresh = names - self.by_name.keys()
        for name in gone:
            del self.by_name[name]
        for name in fresh:
            self.by_name[name] = parse_segment(path, name)
        if gone or fresh:
            self.live = sorted(filter(None, self.by_name.values()), key=_number)


class Listing:
    """The segments of a spool at the last `refresh`. SpoolError if its folders cannot be read."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._folders: dict[str, _Folder] = {}

    def refresh(self) -> None:
        """Read what has changed."""
        try:
            receivers = list_receivers(self._spool)
        except OSError as error:
            raise SpoolError(f"spool {self._spool}: {os_error(error)}") from None
        for receiver in self._folders.keys() - receivers:
            del self._folders[receiver]
        for receiver in receivers:
            self._refresh(receiver)

    def receivers(self) -> list[str]:
        """Sorted by name."""
        return sorted(self._folders)

    def live(self) -> list[Segment]:
        """Return those that are not released, by receiver, in order."""
        return [segment for folder in self._folders.values() for segment in folder.live]

    def released(self, receiver: str) -> int:
        """The number of its last released segment; 0 if there is none."""
        return self._folders[receiver].released if receiver in self._folders else 0

    def last(self, receiver: str) -> int:
        """The number of its last sealed segment, if that is still known; 0 if there is none."""
        if receiver not in self._folders:
            return 0
        found = self._folders[receiver]
        return max(found.released, found.live[-1].number if found.live else 0)

    def segments_after(self, receiver: str, number: int) -> Sequence[Segment]:
        """Return those behind that number, in order. One that is missing among them does not exist."""
        if receiver not in self._folders:
            return []
        found = self._folders[receiver].live
        live = found[bisect_right(found, number, key=_number) :]
        if self.last(receiver) - number <= len(live):
            return live
        return self._search_after(receiver, number)

    def _search_after(self, receiver: str, number: int) -> list[Segment]:
        """Also find released ones, for a checkpoint that was set back, and those that a listing may miss.

        A listing while segments are sealed may contain a segment but not the one before. The next listing has that one.
        """
        folder = self._spool / receiver
        try:
            found = {segment.number: segment for segment in list_segments(folder)}
            found |= {segment.number: segment for segment in list_done(folder)}
        except OSError as error:
            raise SpoolError(f"{folder}: {os_error(error)}") from None
        return [found[key] for key in sorted(found) if key > number]

    def _refresh(self, receiver: str) -> None:
        path = self._spool / receiver
        known = self._folders.setdefault(receiver, _Folder())
        now_ns = time.time_ns()
        try:
            changed_ns = path.stat().st_mtime_ns
            if changed_ns == known.changed_ns:
                return
            with os.scandir(path) as entries:
                known.take_names(path, {entry.name for entry in entries})
            known.released = read_released(path)
        except FileNotFoundError:
            del self._folders[receiver]  # whoever needs its content reports it as missing
            return
        except OSError as error:
            raise SpoolError(f"{path}: {os_error(error)}") from None
        known.changed_ns = changed_ns if now_ns - changed_ns > CLOCK_TICK_NS else -1
