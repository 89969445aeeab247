"""File system operations that are durable on return, never overwrite anything, and touch nothing of other users.

In a folder that several users may write to (/tmp), somebody could put a link or a file of his own where the next file
of an archive will be, and so choose what is written to, or read all of it.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

from nsqfast.program.durable import sync_folder
from nsqfast.tools.shared.program import ToolError, log

FOLDER_MODE = 0o770
FILE_MODE = 0o640
TAIL_SIZE = 1 << 16


def make_folders(folder: Path) -> None:
    """Like `mkdir -p`; each new folder is on disk on return."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folders(folder.parent)
    try:
        folder.mkdir(mode=FOLDER_MODE)
    except FileExistsError:
        if not folder.is_dir():
            raise
    sync_folder(folder.parent)


def check_folders(root: str, folder: Path) -> None:
    """ToolError if `folder`, or one between it and `root`, belongs to another user, who could exchange our files."""
    for each in (folder, *folder.parents):
        if each.is_relative_to(os.path.normpath(root)):
            # Of a link both count: who owns it may let it point elsewhere.
            for found in (each.lstat(), each.stat()):
                _check_owner(
                    each, found, "run as that user, or give --output-dir and --work-dir of your own"
                )


def _check_owner(path: Path, found: os.stat_result, advice: str) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise ToolError(f"{path} belongs to another user ({found.st_uid}): {advice}")


def create_file(path: Path) -> int:
    """Return a descriptor of a new file; FileExistsError if the name is taken."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    sync_folder(path.parent)
    return fd


def open_own(path: Path, flags: int) -> int:
    """Return a descriptor; ToolError for a link, for what is no file, and for a file of another user."""
    advice = "remove it, or choose another --filename-format"
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ToolError(f"{path} is a symbolic link, and none is followed: {advice}") from None
        raise
    try:
        _check_file(path, os.fstat(fd), advice)
    except ToolError:
        os.close(fd)
        raise
    return fd


def _check_file(path: Path, found: os.stat_result, advice: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{path} is not a regular file: {advice}")
    _check_owner(path, found, advice)


def append_file(path: Path, is_whole: Callable[[bytes], bool] | None = None) -> int:
    """Return a descriptor of that file, created if it does not exist.

    Appended data must not become a part of a last record that lacks its end. With `is_whole`, which knows records, one
    that a kill has torn is removed, unless another process writes to this file as well; any other gets a newline.
    """
    is_new = not path.exists()
    fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    if is_new:
        sync_folder(path.parent)
    if is_whole is None:
        _end_record(path, fd)
        return fd
    is_alone = _lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _end_record(path, fd, is_whole if is_alone else None)
    _lock(fd, fcntl.LOCK_SH)  # who opens it next is not alone
    return fd


def _end_record(path: Path, fd: int, is_whole: Callable[[bytes], bool] | None = None) -> None:
    size = os.fstat(fd).st_size
    end = end_of_lines(fd, size)
    if end == size:
        return
    if is_whole is None or is_whole(os.pread(fd, size - end, end)):
        log.warning("%s ends within a record; it is closed by a newline", path)
        os.write(fd, b"\n")
    else:
        log.warning("%s ends within a record; its %d bytes are removed", path, size - end)
        os.ftruncate(fd, end)


def _lock(fd: int, kind: int) -> bool:
    """Whether the lock was to be had; a file system without locks has none."""
    try:
        fcntl.flock(fd, kind)
    except OSError:
        return False
    return True


def end_of_lines(fd: int, size: int) -> int:
    """The place behind the last newline."""
    while size:
        begin = max(0, size - TAIL_SIZE)
        found = os.pread(fd, size - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        size = begin
    return 0


def link_file(source: Path, target: Path) -> None:
    """Give a file a second name; FileExistsError if that is taken."""
    os.link(source, target)
    sync_folder(target.parent)


def remove_file(path: Path) -> None:
    """Remove a file, if it exists; durable on return."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)
