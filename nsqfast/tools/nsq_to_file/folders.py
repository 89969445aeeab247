"""File system operations that are durable on return, and never overwrite anything."""

import os
from pathlib import Path

from nsqfast.tools.shared.durable import sync_folder
from nsqfast.tools.shared.program import log

FOLDER_MODE = 0o770
FILE_MODE = 0o666
TAIL_SIZE = 1


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


def create_file(path: Path) -> int:
    """Return a descriptor of a new file; FileExistsError if the name is taken."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    sync_folder(path.parent)
    return fd


def append_file(path: Path) -> int:
    """Return a descriptor of that file, created if it does not exist.

    If the last record lacks its end, a newline is added: appended data must not become a part of it.
    """
    is_new = not path.exists()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
    if is_new:
        sync_folder(path.parent)
    size = os.fstat(fd).st_size
    if size and os.pread(fd, TAIL_SIZE, size - TAIL_SIZE) != b"\n":
        log.warning("%s ends within a record; it is closed by a newline", path)
        os.write(fd, b"\n")
    return fd


def link_file(source: Path, target: Path) -> None:
    """Give a file a second name; FileExistsError if that is taken."""
    os.link(source, target)
    sync_folder(target.parent)


def remove_file(path: Path) -> None:
    """Remove a file, if it exists; durable on return."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)
