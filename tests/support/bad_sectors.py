"""Reads that fail or wait, and syncs that do not end: a preloaded library (bad_sectors.c)."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from support.server import ROOT, Server, program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SOURCE = Path(__file__).with_suffix(".c")
# nsqfast-nsqd that gives up after so many ns what cannot be read, in place of 30 s.
IMPATIENT = """
import runpy, sys
from nsqfast._ext.storage.diskqueue.unreadable import set_read_retry
set_read_retry(int(sys.argv.pop(1)))
runpy.run_module("nsqfast.nsqd.main", run_name="__main__", alter_sys=True)
"""


class BadSectors:
    """In `folder` are the library and the list of bytes that cannot be read."""

    def __init__(self, folder: Path) -> None:
        self._library = folder / "bad_sectors.so"
        self._list = folder / "list"
        self._list.touch()
        compiler = (sysconfig.get_config_var("CC") or "cc").split()
        command = [*compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE)]
        subprocess.run([*command, "-ldl"], check=True)

    def set(self, *ranges: tuple[Path, int, int], error: int = errno.EIO) -> None:
        """(file, first byte, byte behind the last) of all that cannot be read from now on."""
        self._write("".join(f"{path} {start} {end} {error}\n" for path, start, end in ranges))

    def slow(self, path: Path) -> None:
        """From now on until the next set() the fdatasync of the file does not end."""
        self._write(f"{path} 0 0 0\n")

    def _write(self, text: str) -> None:
        draft = self._list.with_suffix(".new")
        draft.write_text(text, encoding="utf-8")
        draft.rename(self._list)

    @property
    def environment(self) -> dict[str, str]:
        # A sanitizer wants to be the first.
        preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(self._library)]))
        return {"LD_PRELOAD": preload, "NSQ_BAD_SECTORS": str(self._list)}

    def run(self, code: str, *arguments: str) -> str:
        """What Python code prints whose reads fail."""
        command = [sys.executable, "-c", code, *arguments]
        environment = os.environ | self.environment
        done = subprocess.run(
            command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    @contextlib.contextmanager
    def nsqd(
        self,
        folder: Path,
        *flags: str,
        cold: Path | None = None,
        retry_ns: int | None = None,
        listeners: Sequence[str] = ("TCP", "HTTP"),
    ) -> Iterator[Server]:
        """A broker whose reads fail, or take 10 ms each; `cold` gets a line for each that its loop waits for.

        retry_ns: how long it tries what cannot be read before it gives that up; 30 s without.
        listeners: those to wait for."""
        environment = self.environment | ({"NSQ_COLD_READS": str(cold)} if cold else {})
        settings = [f"{name}={value}" for name, value in environment.items()]
        addresses = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
        command = program("nsqd", "nsqfast")
        if retry_ns is not None:
            command = [sys.executable, "-c", IMPATIENT, str(retry_ns)]
        command += [f"--data-path={folder}", *addresses]
        with Server(
            ["env", *settings, *command, "--broadcast-address=127.0.0.1", *flags], listeners
        ) as server:
            yield server
