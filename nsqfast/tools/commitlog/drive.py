"""What the kernel says of the file system and the drives below a folder. It may know less than there is."""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
BLOCKS = Path("/sys/dev/block")
_OCTAL = re.compile(r"\\([0-7]{3})")
IN_MEMORY = {"tmpfs", "ramfs"}


@dataclass(frozen=True, slots=True)
class Drive:
    """A whole drive, below partitions, mappings and RAID."""

    name: str
    write_cache: str  # "write back", "write through"; empty = not known
    has_fua: bool | None

    def describe(self) -> str:
        """What that means for a commit, as far as it goes."""
        if self.write_cache == "write back":
            how = "written past it (FUA)" if self.has_fua else "flushed"
            return (
                f"{self.name}: as far as the kernel knows its cache is lost in a power cut (write back), and each "
                f"commit is {how}; drives with power-loss protection often say write through, and are faster"
            )
        if self.write_cache == "write through":
            return (
                f"{self.name}: as far as the kernel knows no cache of it is lost in a power cut (write through), and "
                "nothing is flushed; whether that is so, its data sheet or the host says"
            )
        return f"{self.name}: the kernel does not say whether its cache is volatile"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a folder is."""

    file_system: str  # empty = not known
    source: str
    drives: tuple[Drive, ...]

    def hints(self) -> list[str]:
        """Lines on what a power cut may take."""
        if self.file_system in IN_MEMORY:
            return [f"{self.file_system} is in memory: nothing of it survives a restart"]
        if not self.drives:
            return [
                "the kernel does not say which drive that is, nor whether its cache is lost in a power cut"
            ]
        return [each.describe() for each in self.drives]


@dataclass(frozen=True, slots=True)
class Mount:
    """Of a file system; `device` is its number, which a file's st_dev need not be (btrfs)."""

    device: int = 0
    file_system: str = ""
    source: str = ""


def find_mount(folder: Path) -> Mount:
    """That with the longest path above the folder; of two on one path the later one."""
    # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    target, longest, found = folder.resolve(), -1, Mount()
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            before, _, behind = line.partition(" - ")
            words, kind = before.split(), behind.split()
            point = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), words[4])
            if target.is_relative_to(point) and len(point) >= longest:
                major, _, minor = words[2].partition(":")
                longest, device = len(point), os.makedev(int(major), int(minor))
                found = Mount(device, kind[0], kind[1])
    return found


def find_place(folder: Path) -> Place:
    """What is not known is empty."""
    mount = find_mount(folder)
    number = folder.stat().st_dev
    with contextlib.suppress(OSError):
        if mount.source.startswith("/"):
            number = Path(mount.source).stat().st_rdev
    block = BLOCKS / f"{os.major(number)}:{os.minor(number)}"
    drives = {each.name: each for each in _find_drives(block)} if os.major(number) else {}
    return Place(mount.file_system, mount.source, tuple(drives.values()))


def _find_drives(block: Path) -> Iterator[Drive]:
    with contextlib.suppress(OSError):
        path = block.resolve(strict=True)
        if (path / "partition").exists():
            path = path.parent
        below = list((path / "slaves").iterdir()) if (path / "slaves").is_dir() else []
        for each in below:
            yield from _find_drives(each)
        if not below:
            fua = _read(path / "queue" / "fua")
            yield Drive(
                path.name, _read(path / "queue" / "write_cache"), fua == "1" if fua else None
            )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
