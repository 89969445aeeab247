"""How long one commit takes on a disk: the ways to do it, each timed by itself.

Python's part is small beside what an fsync takes. The buffer is a mapping, because O_DIRECT wants one that begins on a
page.
"""

import errno
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

FILE_BYTES = 16 << 20
APPEND_BYTES = 64 << 20
# What a file system answers that has no O_DIRECT: to open, or only to the first write.
REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP)
# Whether to go on, after so many commits.
Going = Callable[[int], bool]


def append(folder: Path, size: int, is_going: Going) -> list[int]:
    """Append to a growing file, and fdatasync: what a broker does that syncs its data file. The times in ns.

    When it has APPEND_BYTES it is emptied, which does not count.
    """
    path = folder / "append"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    room = APPEND_BYTES // size

    def prepare(number: int) -> None:
        if number and number % room == 0:
            os.ftruncate(fd, 0)
            os.fsync(fd)

    def commit(block: mmap.mmap, number: int) -> None:
        write(fd, block, number % room * size)
        os.fdatasync(fd)

    return _timed(prepare, commit, size, is_going, fd, path)


def overwrite(folder: Path, size: int, is_going: Going) -> list[int]:
    """Overwrite blocks of a file of zeros, and fdatasync."""
    path = folder / "overwrite"
    fd = _open_zeros(path, os.O_WRONLY)

    def commit(block: mmap.mmap, number: int) -> None:
        write(fd, block, number * size % FILE_BYTES)
        os.fdatasync(fd)

    return _timed(_nothing, commit, size, is_going, fd, path)


def overwrite_directly(folder: Path, size: int, is_going: Going) -> list[int] | None:
    """Overwrite blocks of a file of zeros by O_DIRECT and O_DSYNC; None where the file system refuses that."""
    path = folder / "direct"
    try:
        fd = _open_zeros(path, os.O_WRONLY | os.O_DIRECT | os.O_DSYNC)

        def commit(block: mmap.mmap, number: int) -> None:
            write(fd, block, number * size % FILE_BYTES)

        return _timed(_nothing, commit, size, is_going, fd, path)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno not in REFUSALS:
            raise
        return None


def _open_zeros(path: Path, flags: int) -> int:
    with path.open("wb") as file:
        file.write(bytes(FILE_BYTES))
        file.flush()
        os.fsync(file.fileno())  # the zeros must not share the first commits' time
    return os.open(path, flags)


def write(fd: int, block: mmap.mmap, at: int) -> None:
    """OSError for a short write as well, which a full disk may cause."""
    if os.pwrite(fd, block, at) < len(block):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _nothing(_number: int) -> None:
    pass


def _timed(
    prepare: Callable[[int], None],
    commit: Callable[[mmap.mmap, int], None],
    size: int,
    is_going: Going,
    fd: int,
    path: Path,
) -> list[int]:
    """The file is deleted afterwards."""
    taken_ns: list[int] = []
    try:
        with mmap.mmap(-1, size) as block:
            block.write(os.urandom(size))
            while is_going(len(taken_ns)):
                prepare(len(taken_ns))
                began_ns = time.perf_counter_ns()
                commit(block, len(taken_ns))
                taken_ns.append(time.perf_counter_ns() - began_ns)
    finally:
        os.close(fd)
        path.unlink()
    return taken_ns
