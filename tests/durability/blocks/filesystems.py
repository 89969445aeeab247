"""The file systems under test, each as small as it may be, so that a state costs little."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class FileSystem:
    """How to make and mount one."""

    name: str
    size: int
    make: tuple[str, ...]
    package: str
    # The superblock: (offset, size) of what the file system trusts the disk to write as a whole.
    whole: tuple[tuple[int, int], ...]
    # Discards would take the place of the losses that the replay chooses.
    options: str = "nodiscard"

    def make_on(self, image: Path) -> None:
        """An empty file system in a sparse file."""
        rough = image.with_suffix(".rough")
        with rough.open("wb") as file:
            os.truncate(file.fileno(), self.size)
        try:
            subprocess.run([*self.make, str(rough)], check=True, capture_output=True)
            # The zeros of the journal become holes, which a copy leaves out.
            subprocess.run(["cp", "--sparse=always", str(rough), str(image)], check=True)
        finally:
            rough.unlink()

    def is_there(self) -> bool:
        return shutil.which(self.make[0]) is not None


# Tables written at once, for a thread of the kernel would write them during the workload.
EXT4_TABLES = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"

FILE_SYSTEMS = {
    one.name: one
    for one in (
        FileSystem(
            "ext4",
            64 * MIB,
            (*"mkfs.ext4 -q -F -b 4096 -J size=4 -E".split(), EXT4_TABLES),
            "e2fsprogs",
            ((0, 4096),),
        ),
        # All states have one UUID, and a process with mounts of its own may hold the last one for a while.
        FileSystem(
            "xfs",
            300 * MIB,
            ("mkfs.xfs", "-q", "-f", "-K"),
            "xfsprogs",
            ((0, 512),),
            "nodiscard,nouuid",
        ),
        FileSystem(
            "btrfs",
            300 * MIB,
            ("mkfs.btrfs", "-q", "-f", "-K"),
            "btrfs-progs",
            ((64 << 10, 4096), (64 * MIB, 4096)),
        ),
    )
}
