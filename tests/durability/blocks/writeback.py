"""What the kernel does sooner or later: dirty pages go to the disk, without a flush."""

from __future__ import annotations

import ctypes
import os

SYNC_FILE_RANGE_WAIT_BEFORE = 1
SYNC_FILE_RANGE_WRITE = 2
SYNC_FILE_RANGE_WAIT_AFTER = 4

_LIBC = ctypes.CDLL(None, use_errno=True)


def write_back(fd: int) -> None:
    """All pages of the file; returns when the disk has taken them."""
    flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
    if _LIBC.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
