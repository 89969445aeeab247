"""File system operations that are durable on return, or keep others out."""

import os
from pathlib import Path

PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE = 0o600, 0o700


def sync_folder(folder: Path) -> None:
    """Return when the names in the folder are on disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_private(path: str | Path, flags: int) -> int:
    """An opener for `open`: only the owner may read a new file, and no link is followed."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE_MODE)
