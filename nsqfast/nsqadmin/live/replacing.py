"""Replace files atomically: the old or the new one is complete, whatever happens during the write."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A stream whose content replaces PATH at the end of the block; OSError."""
    beside = Path(f"{path}.new")
    with beside.open("wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)
    folder = os.open(Path(path).parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
