"""Another boot of the machine, as far as a process can see: a boot id of its own, in a mount namespace of its own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

BOOT_ID = "/proc/sys/kernel/random/boot_id"
CLONE_NEWNS = 0x20000
CLONE_NEWUSER = 0x10000000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), what)


class Boot:
    """`enter` moves the calling process there, for good; it may be called between fork and exec."""

    def __init__(self, boot_id: str) -> None:
        assert len(boot_id) == len("00000000-0000-0000-0000-000000000000")
        handle, name = tempfile.mkstemp(prefix="nsqfast-boot-")
        with os.fdopen(handle, "w") as file:
            file.write(boot_id + "\n")
        self._path = Path(name)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def enter(self) -> None:
        flags = CLONE_NEWNS if os.geteuid() == 0 else CLONE_NEWNS | CLONE_NEWUSER
        _check(self._libc.unshare(flags), "unshare")
        # What is mounted here later is seen there where the system shares its mounts; never the reverse.
        _check(self._libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None), "mount /")
        source = os.fsencode(self._path)
        _check(self._libc.mount(source, BOOT_ID.encode(), None, MS_BIND, None), "mount boot_id")

    def close(self) -> None:
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_boot(number: int) -> Boot:
    """The boots of one machine, by number."""
    return Boot(f"{number:08x}-0000-4000-8000-000000000000")


def why_not() -> str:
    """Why there can be no other boot here; '' if there can."""
    with make_boot(0) as boot:
        try:
            read = [sys.executable, "-c", f"print(open('{BOOT_ID}').read())"]
            done = subprocess.run(
                read, preexec_fn=boot.enter, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"no boot id of our own: mount namespaces are not permitted ({error})"
        if not done.stdout.startswith("00000000-"):
            return "no boot id of our own: the mount had no effect"
    return ""
