"""The disk alone: how long one commit takes, without any broker.

Python's part is small beside what an fsync takes. The buffer is a mapping, because O_DIRECT wants one that begins on a
page.
"""

from __future__ import annotations

import errno
import mmap
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from server.loads import Sample

DEVICE = "device"
FILE_BYTES = 16 << 20
# What a file system answers that has no O_DIRECT: to open, or only to the first write.
REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP)


def append(folder: Path, size: int, count: int) -> Sample:
    """Append to a growing file, and fdatasync: what a broker does that syncs its data file."""
    path = folder / "append"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with mmap.mmap(-1, size) as block:
        block.write(os.urandom(size))

        def commit(number: int) -> None:
            os.pwrite(fd, block, number * size)
            os.fdatasync(fd)

        return _timed(commit, count, fd, path)


def overwrite(folder: Path, size: int, count: int) -> Sample | None:
    """Overwrite blocks of a file of zeros by O_DIRECT and O_DSYNC; None where the file system refuses that."""
    path = folder / "overwrite"
    path.write_bytes(bytes(FILE_BYTES))
    try:
        fd = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_DSYNC)
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        return None
    os.sync()  # the zeros must not share the first commits' time
    with mmap.mmap(-1, size) as block:
        block.write(os.urandom(size))

        def commit(number: int) -> None:
            os.pwrite(fd, block, number * size % FILE_BYTES)

        try:
            return _timed(commit, count, fd, path)
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
            return None


def _timed(commit: Callable[[int], None], count: int, fd: int, path: Path) -> Sample:
    """Percentiles of that many commits, in µs; the file is deleted afterwards."""
    taken_ns = []
    try:
        for number in range(count):
            began_ns = time.perf_counter_ns()
            commit(number)
            taken_ns.append(time.perf_counter_ns() - began_ns)
    finally:
        os.close(fd)
        path.unlink()
    taken_ns.sort()
    return {
        f"commit_p{percent}_us": taken_ns[count * percent // 100] / 1000 for percent in (50, 99)
    }
