"""Locks that end with their process: one query for a spool, one receiver for a folder."""

import fcntl
import os
import socket
from pathlib import Path
from typing import Self

from nsqfast.spark.spool.identity import SpoolError
from nsqfast.tools.shared.durable import open_private
from nsqfast.wire.gotext import os_error

QUERY = "QUERY.lock"
RECEIVER = "LOCK"
_HOLDER_SIZE = 200


def is_held(path: Path) -> bool:
    """Whether a living process has it."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class Lock:
    """Locked from `take` until `release` or the end of the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, path: Path, what: str) -> Self:
        """SpoolError if a living process has it; `what` begins that line, the owner's process ends it."""
        try:
            fd = open_private(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise SpoolError(f"{path}: {os_error(error)}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, _HOLDER_SIZE, 0).decode(errors="replace").strip()
            os.close(fd)
            raise SpoolError(f"{what} ({holder or 'another process'})") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return cls(fd)

    def release(self) -> None:
        """Unlock; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
