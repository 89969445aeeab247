"""Steps on a file system that are durable when they return."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """The names in it are on disk when this returns."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
