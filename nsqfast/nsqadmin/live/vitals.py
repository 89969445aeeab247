"""What an nsqd says of its disk and of its process on /metrics, as ours do; the last looks at it, once a minute."""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf

FIGURE_MAX = float(1 << 63)
HEAD_SIZE = 64 << 10  # its own figures come first, those of topics follow
LOOKS_MAX = 15
BOUNDS_MAX = 32  # of the histogram of delays: ours has half as many
SLOPE_S_MIN = 100.0  # two looks lie a minute apart
VERSION = re.compile(r'nsqd_build_info\{nsqfast_version="([\w.+-]{1,32})"')
LAG = re.compile(r'nsqd_loop_lag_seconds_bucket\{le="([\d.]+|\+Inf)"\}')


@dataclass(frozen=True, slots=True)
class Disk:
    """Space of the file system with nsqd's data path."""

    free_bytes: float
    size_bytes: float

    @property
    def used_bytes(self) -> float:
        """By whomever."""
        return max(self.size_bytes - self.free_bytes, 0.0)


@dataclass(frozen=True, slots=True)
class Look:
    """What was said once; None for what was not."""

    at_s: float  # monotonic
    version: str  # of nsqfast
    disk: Disk | None
    open_files: float | None
    files_max: float | None
    fsyncs: tuple[float, float]  # their number, and the seconds that they took
    lags: tuple[
        tuple[float, float], ...
    ]  # an upper bound in seconds, and how many timers were not later


class Vitals:
    """Of one nsqd, since it was started."""

    def __init__(self, start_time: int) -> None:
        self.start_time = start_time
        self._looks: deque[Look] = deque(maxlen=LOOKS_MAX)

    def add(self, look: Look) -> None:
        """The newest."""
        self._looks.append(look)

    @property
    def last(self) -> Look:
        """There is always one."""
        return self._looks[-1]

    @property
    def disk(self) -> Disk | None:
        """At the last look."""
        return self.last.disk

    @property
    def free_change_s(self) -> float | None:
        """Bytes a second by which the free space has changed in the last minutes; None: not known yet."""
        points = [(look.at_s, look.disk.free_bytes) for look in self._looks if look.disk]
        if not points or points[-1][0] - points[0][0] < SLOPE_S_MIN:
            return None
        (first_s, first), (last_s, last) = points[0], points[-1]
        return (last - first) / (last_s - first_s)

    @property
    def full_in_s(self) -> float | None:
        """When its disk is full at this rate; None: never, or not known."""
        change_s, disk = self.free_change_s, self.disk
        return disk.free_bytes / -change_s if disk and change_s and change_s < 0 else None

    @property
    def fsync_s(self) -> float | None:
        """Mean of the fsyncs since the look before, or since the start; None: there was none."""
        count, took_s = self.last.fsyncs
        if len(self._looks) > 1:
            count_before, took_before_s = self._looks[-2].fsyncs
            count, took_s = count - count_before, took_s - took_before_s
        return took_s / count if count > 0 and took_s >= 0 else None

    @property
    def lag_s(self) -> float | None:
        """The upper bound of how late a timer was since the look before; infinite above the last bound."""
        before = dict(self._looks[-2].lags) if len(self._looks) > 1 else {}
        since = [(bound, count - before.get(bound, 0.0)) for bound, count in self.last.lags]
        steps = pairwise([(0.0, 0.0), *since])
        return max((bound for (_, less), (bound, count) in steps if count > less), default=None)


def read_look(metrics: bytes | bytearray, at_s: float) -> Look | None:
    """None for anything that is not /metrics of our nsqd."""
    head = metrics[:HEAD_SIZE].decode("utf-8", "replace")
    lines = [line for line in head.split("\n")[:-1] if not line.startswith("#")]
    version = next((found[1] for line in lines if (found := VERSION.match(line))), None)
    if version is None:
        return None
    figures = dict(map(_read_figure, lines))
    lags = [(found[1], figures[name]) for name in figures if (found := LAG.fullmatch(name))]
    return Look(
        at_s,
        version,
        _read_disk(figures),
        figures.get("process_open_fds"),
        figures.get("process_max_fds"),
        (
            figures.get("nsqd_fsync_duration_seconds_count", 0.0),
            figures.get("nsqd_fsync_duration_seconds_sum", 0.0),
        ),
        tuple((_bound(text), count) for text, count in lags[:BOUNDS_MAX]),
    )


def _bound(text: str) -> float:
    try:
        return inf if text == "+Inf" else float(text)
    except ValueError:  # 1.2.3
        return inf


def _read_figure(line: str) -> tuple[str, float]:
    name, _, text = line.rpartition(" ")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    # None of them is below zero; one that is no number, or larger than any disk, is not known.
    return (name, value) if 0 <= value <= FIGURE_MAX else ("", 0.0)


def _read_disk(figures: Mapping[str, float]) -> Disk | None:
    size = figures.get("nsqd_disk_size_bytes")
    free = figures.get("nsqd_disk_free_bytes")
    return Disk(free, size) if size and free is not None else None
