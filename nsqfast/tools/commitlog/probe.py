"""Measures how fast a disk commits, one commit at a time, and says which way a ring would use."""

import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsqfast.errors import NsqfastError
from nsqfast.program.logs import escape_controls, escape_json_controls
from nsqfast.program.stdout import print_text
from nsqfast.tools.commitlog import device
from nsqfast.tools.commitlog.drive import Place, find_place
from nsqfast.tools.commitlog.options import JSON, Options
from nsqfast.wire.gotext import os_error

SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20}
DIRECT = "overwrite, O_DIRECT and O_DSYNC"
WAYS: dict[str, Callable[[Path, int, device.Going], list[int] | None]] = {
    "append, fdatasync": device.append,
    "overwrite, fdatasync": device.overwrite,
    DIRECT: device.overwrite_directly,
}
PREFIX = "nsqfast-probe-"
ROOM_BYTES = device.APPEND_BYTES + (1 << 20)
FAILED, WRONG_USE = 1, 2  # exit status


class ProbeError(NsqfastError):
    """Nothing can be measured there."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Row:
    """Commits of one size in one way; without times the file system refuses it."""

    way: str
    size_bytes: int
    taken_ns: list[int] | None

    def to_json(self) -> dict[str, Any]:
        """Times in µs."""
        fields: dict[str, Any] = {"way": self.way, "bytes": self.size_bytes}
        if not self.taken_ns:
            return {**fields, "is_supported": False}
        ordered = sorted(self.taken_ns)
        at = len(ordered)
        return {
            **fields,
            "is_supported": True,
            "commits": at,
            "p50_us": ordered[at // 2] / 1000,
            "p99_us": ordered[at * 99 // 100] / 1000,
            "max_us": ordered[-1] / 1000,
            "commits_per_s": round(at / max(sum(ordered), 1) * 1e9, 1),
        }


def probe(options: Options, look: Callable[[], None]) -> int:
    """Print the table; return the exit status. ProbeError, or what `look` raises, called before each commit."""
    folder = Path(options.data_path or ".")
    try:
        place = find_place(folder)
        rows = measure(folder, options.seconds, look)
    except (OSError, ValueError) as error:
        raise _explain(folder, error) from None
    is_direct = all(row.taken_ns for row in rows if row.way == DIRECT)
    if options.format == JSON:
        print_text(escape_json_controls(json.dumps(to_json(folder, place, rows, is_direct))))
    else:
        print_text("\n".join(map(escape_controls, compose(folder, place, rows, is_direct))))
    return 0


def measure(folder: Path, seconds: float, look: Callable[[], None]) -> list[Row]:
    """In files of its own, which are removed whatever happens; OSError."""
    free_bytes = _count_free(folder)
    if free_bytes < ROOM_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    scratch = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
    try:
        return [
            Row(way, size, commit(scratch, size, _for(seconds, look)))
            for size in SIZES.values()
            for way, commit in WAYS.items()
        ]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _count_free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _for(seconds: float, look: Callable[[], None]) -> device.Going:
    """So long, from the first commit on, which is made in any case."""
    end_s = 0.0

    def is_going(done: int) -> bool:
        nonlocal end_s
        look()
        if not done:
            end_s = time.monotonic() + seconds
        return not done or time.monotonic() < end_s

    return is_going


def _explain(folder: Path, error: OSError | ValueError) -> ProbeError:
    name = str(folder)
    if not isinstance(error, OSError):  # a zero byte in the name
        return ProbeError(f"{name}: {error}", WRONG_USE)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        room = f"{ROOM_BYTES >> 20} MiB have to be free for a probe"
        return ProbeError(f"{name}: {os_error(error)}: {room}", FAILED)
    unusable = (
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    )
    return ProbeError(
        f"{name}: {os_error(error)}", WRONG_USE if error.errno in unusable else FAILED
    )


def to_json(folder: Path, place: Place, rows: list[Row], is_direct: bool) -> dict[str, Any]:
    """One object."""
    drives = [
        {"name": each.name, "write_cache": each.write_cache or None, "has_fua": each.has_fua}
        for each in place.drives
    ]
    return {
        "folder": str(folder),
        "file_system": place.file_system or None,
        "source": place.source or None,
        "drives": drives,
        "has_o_direct": is_direct,
        "rows": [row.to_json() for row in rows],
    }


def compose(folder: Path, place: Place, rows: list[Row], is_direct: bool) -> list[str]:
    """The report as lines."""
    name = str(folder).encode(errors="backslashreplace").decode()
    where = f"{place.file_system or 'file system not known'} on {place.source or 'nothing that is known'}"
    taken = "takes O_DIRECT" if is_direct else "refuses O_DIRECT"
    way = "O_DIRECT and O_DSYNC" if is_direct else "write and fdatasync"
    lines = [
        f"{name}: {where}; it {taken}",
        f"A ring that syncs each batch would overwrite its files by {way}.",
        *place.hints(),
        "",
        f"{'commit':<8}{'way':<33}{'p50 µs':>10}{'p99 µs':>10}{'max µs':>10}{'commits/s':>12}",
    ]
    names = {size: text for text, size in SIZES.items()}
    for row in rows:
        start, found = f"{names[row.size_bytes]:<8}{row.way:<33}", row.to_json()
        if found["is_supported"]:
            times = "".join(f"{found[key]:>10,.0f}" for key in ("p50_us", "p99_us", "max_us"))
            lines.append(f"{start}{times}{found['commits_per_s']:>12,.0f}")
        else:
            lines.append(f"{start} not supported by this file system")
    return lines
