"""File system operations that are durable on return."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Return when the names in the folder are on disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
