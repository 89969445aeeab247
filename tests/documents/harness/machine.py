"""What a page finds when it is run: a machine with a name, a loopback, and folders that nobody else sees.

For a process in namespaces of its own (`unshare --net --mount --pid --uts --fork --kill-child --mount-proc`): pages use
the ports and folders of a real installation, such as 4150 and /var/lib/nsqd.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from support.network import set_loopback

# Any folder will do: it is covered in the namespace of this process alone.
PLACE = Path("/mnt")


def enter_machine(name: str) -> None:
    """From now on what is written anywhere is in memory, and gone at the end; OSError or CalledProcessError."""
    socket.sethostname(name)
    set_loopback(is_up=True)
    here = Path.cwd()
    _mount("-t", "tmpfs", "tmpfs", str(PLACE))
    root = PLACE / "root"
    for folder in ("written", "work", "root"):
        (PLACE / folder).mkdir()
    folders = f"lowerdir=/,upperdir={PLACE}/written,workdir={PLACE}/work"
    _mount("-t", "overlay", "overlay", "-o", folders, str(root))
    for folder in ("proc", "dev", "sys"):
        _mount("--rbind", f"/{folder}", str(root / folder))
    os.chroot(root)
    os.chdir(here)  # fails where it is on another file system


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)
