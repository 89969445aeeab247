"""Writes that fail or are short, and syncs that fail: a preloaded library (bad_writes.c)."""

from __future__ import annotations

import errno
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from support.server import Server, program

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE = Path(__file__).with_suffix(".c")
WRITE, SHORT, SYNC = "write", "short", "sync"


class BadWrites:
    """In `folder` are the library and the list of what fails."""

    def __init__(self, folder: Path) -> None:
        self._library = folder / "bad_writes.so"
        self._list = folder / "failing"
        self._list.touch()
        compiler = (sysconfig.get_config_var("CC") or "cc").split()
        command = [*compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE)]
        subprocess.run([*command, "-ldl"], check=True)

    def fail(self, names: Iterable[str], what: str = WRITE, error: int = errno.EIO) -> None:
        """From now on, for all files whose path ends so; nothing else fails any more."""
        draft = self._list.with_suffix(".new")
        draft.write_text("".join(f"{name} {what} {error}\n" for name in names), encoding="utf-8")
        draft.rename(self._list)

    def heal(self) -> None:
        self.fail(())

    def nsqd(self, folder: Path, *flags: str) -> Server:
        """A broker that it happens to."""
        # A sanitizer wants to be the first.
        preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(self._library)]))
        settings = [f"LD_PRELOAD={preload}", f"NSQ_BAD_WRITES={self._list}"]
        addresses = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
        command = [*program("nsqd", "nsqfast"), f"--data-path={folder}", *addresses]
        return Server(["env", *settings, *command, "--broadcast-address=127.0.0.1", *flags])
