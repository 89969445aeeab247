"""The disk alone: how long one commit takes, without any broker, as `nsqfast-commitlog probe` measures it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqfast.tools.commitlog import device

if TYPE_CHECKING:
    from pathlib import Path

    from server.loads import Sample

DEVICE = "device"


def append(folder: Path, size: int, count: int) -> Sample:
    """Append to a growing file, and fdatasync: what a broker does that syncs its data file."""
    return _percentiles(device.append(folder, size, lambda done: done < count))


def overwrite(folder: Path, size: int, count: int) -> Sample | None:
    """Overwrite blocks of a file of zeros by O_DIRECT and O_DSYNC; None where the file system refuses that."""
    taken_ns = device.overwrite_directly(folder, size, lambda done: done < count)
    return None if taken_ns is None else _percentiles(taken_ns)


def _percentiles(taken_ns: list[int]) -> Sample:
    """In µs."""
    ordered = sorted(taken_ns)
    return {
        f"commit_p{percent}_us": ordered[len(ordered) * percent // 100] / 1000
        for percent in (50, 99)
    }
