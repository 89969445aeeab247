"""Releasing: Spark has processed a segment and will not need it again.

A released segment is kept for a while: a receiver reads it when a message comes a second time, and a checkpoint that
was set back by hand needs it.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from nsqfast.program.durable import open_private, sync_folder
from nsqfast.spark.spool.identity import SpoolError
from nsqfast.spark.spool.segments import Segment, list_done, list_segments

FILE = "RELEASED"


def read_released(folder: Path) -> int:
    """The number of that receiver's last released segment; 0 if there is none."""
    path = folder / FILE
    try:
        return int(path.read_bytes())
    except FileNotFoundError:
        return 0
    except ValueError:
        raise SpoolError(
            f"{path} does not hold a number; use another folder for the spool"
        ) from None


def release_segments(folder: Path, number: int) -> None:
    """Release all up to that one, and complete an earlier call that was killed."""
    released = read_released(folder)
    if number > released:
        _write_released(folder, number)
    for segment in list_segments(folder):
        if segment.number <= max(number, released):
            segment.path.rename(segment.done_path)


def release_names(folder: Path, names: Iterable[str]) -> None:
    """Release the segments of these names, in any order; there may be none of some of them any more."""
    live: dict[str, Segment] | None = None
    for name in names:
        if live is None:
            live = {segment.name: segment for segment in list_segments(folder)}
        if name in live:
            segment = live.pop(name)
            with contextlib.suppress(FileNotFoundError):
                segment.path.rename(segment.done_path)


def _write_released(folder: Path, number: int) -> None:
    draft = folder / f".{FILE}"
    with open(draft, "wb", opener=open_private) as file:
        file.write(b"%d\n" % number)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(folder / FILE)
    sync_folder(folder)


def remove_done(folder: Path, retention_s: float, size_max: int) -> int:
    """Remove segments released longer ago than that, and the oldest ones if all have more bytes; return how many.

    The last one always stays: its number must never be used again.
    """
    done = list_done(folder)
    oldest_kept_s = time.time() - retention_s
    excess = sum(segment.size for segment in done) - size_max
    count = 0
    for segment in done[:-1]:
        # A receiver and a query may do this at the same time.
        with contextlib.suppress(FileNotFoundError):
            # Its name was changed when it was released.
            if excess <= 0 and segment.done_path.stat().st_ctime >= oldest_kept_s:
                break
            segment.done_path.unlink()
            count += 1
        excess -= segment.size
    return count
