"""Files that nsq_to_file has not finished: those that it writes, and those that killed runs left.

Who writes a file has a shared lock on it.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

WORK = ".work"  # what docs/BACKUP.md puts behind the name of the folder of finished files


def list_files(folder: Path) -> Iterator[Path]:
    """Yield the files in it and below it, but what is no folder, is removed meanwhile or may not be read."""

    def judge(error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
            raise error

    for place, _, names in os.walk(folder, onerror=judge):
        for path in (Path(place, name) for name in names):
            if path.is_file():
                yield path


def lock_writer(fd: int) -> None:
    """As long as it is open, others know that somebody writes it; a file system without locks has none."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH)


def is_written(fd: int) -> bool:
    """Whether another process writes it. If none does, none that asks first will as long as this is open."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    # Go's nsq_to_file locks nothing, but nobody gets a lease on a file that others have open.
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return True
    except (OSError, AttributeError):  # not on every system, nor on every file system
        return False
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def is_written_at(path: Path) -> bool:
    """The same; of a file that this user may not read nobody knows. FileNotFoundError: it got its name meanwhile."""
    try:
        with path.open("rb") as file:
            return is_written(file.fileno())
    except PermissionError:
        return False
