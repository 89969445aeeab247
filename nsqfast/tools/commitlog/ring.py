"""A ring's folder, opened for reading alone; what makes that impossible is said in one line."""

import errno
import os
import stat
from pathlib import Path

from nsqfast._ext.commitlog.view import FORMAT, RingView
from nsqfast.errors import NsqfastError, OptionsError
from nsqfast.tools.commitlog.drive import find_mount
from nsqfast.wire.gotext import os_error

DAMAGED, NONE = 1, 2  # exit status
FILES = ("head", "0.ring", "1.ring", "2.ring", "3.ring")
DATA_PATH_FILES = {"nsqd.dat", "nsqfast.running"}
LOCKS = "/proc/locks"
Damage = tuple[str, int, int, tuple[int, int]]  # file, start, end, first and last batch


class RingError(NsqfastError):
    """It cannot be looked at; `status` says whether that is damage."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def open_ring(folder: str) -> RingView:
    """RingError: there is none, or none that can be read."""
    try:
        _check_files(Path(folder))
        view = RingView(folder)
        view.open()
    except OptionsError as error:
        raise RingError(_shorten(str(error)), NONE if view.format > FORMAT else DAMAGED) from None
    except OSError as error:
        status = DAMAGED if error.errno == errno.EIO else NONE
        raise RingError(f"{error.filename or folder}: {os_error(error)}", status) from None
    except ValueError as error:  # a zero byte in the name
        raise RingError(f"{folder}: {error}", NONE) from None
    return view


def _check_files(folder: Path) -> None:
    if not stat.S_ISDIR(folder.stat().st_mode):
        raise RingError(f"{folder}: not a folder", NONE)
    names = {each.name for each in folder.iterdir()}
    found = [name for name in FILES if name in names]
    if not found and names & DATA_PATH_FILES:
        raise RingError(f"{folder}: a data path, not the folder of a ring", NONE)
    if not found:
        raise RingError(f"{folder}: no ring: it has none of {', '.join(FILES)}", NONE)
    for name in found:
        mode = (folder / name).lstat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "no regular file"
            raise RingError(f"{folder / name}: {kind}; no ring has that", DAMAGED)


def _shorten(text: str) -> str:
    """Without the advice for a start that is refused."""
    return text.partition(": restore the folder")[0]


def is_in_use(folder: str) -> bool:
    """Whether a broker has locked this folder or the one above it, as far as the kernel lists locks.

    To try the lock would keep a broker out that starts at this moment.
    """
    wanted = set()
    for path in (Path(folder), Path(folder, "..")):
        found = path.stat()
        for device in (found.st_dev, find_mount(path).device):
            wanted.add(f"{os.major(device):02x}:{os.minor(device):02x}:{found.st_ino}")
    try:
        lines = Path(LOCKS).read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    # 1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF
    return any(
        words[1] == "FLOCK" and words[5] in wanted
        for words in map(str.split, lines)
        if len(words) > 5
    )


def stamps(folder: str) -> list[int]:
    """They differ where a file was written in between."""
    return [Path(folder, name).stat().st_mtime_ns for name in FILES]


def describe_damage(damage: Damage) -> str:
    """In one line."""
    path, start, end, (first, last) = damage
    where = f"{Path(path).name} {start}-{end}"
    if not first:
        return f"{where}: cannot be read"
    batches = f"batch {first}" if first == last else f"batches {first}-{last}"
    return f"{where}: {batches}" if start < end else f"{batches}: nothing is left of them"
