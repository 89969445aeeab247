"""The recorder (calls.c): built on first use, told what to watch, and its log read."""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support.server import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = Path(__file__).with_name("calls.c")
HEAD = struct.Struct("<IIiIIIQQQqqq")

OPENED, WRITTEN, CUT, ALLOCATED, STORED = "O", "W", "T", "A", "M"
SYNC_BEGAN, SYNC_ENDED = "<", ">"
RENAMED, UNLINKED, LINKED = "N", "U", "L"
# A write that is on disk when it returned: known from its begin on.
SYNC_WRITE_BEGAN, SYNC_WRITE_ENDED = "w", "d"
FOLDER_MADE, FOLDER_REMOVED = "D", "R"


@dataclass(slots=True)
class Call:
    kind: str
    thread: int
    begun_ns: int
    ended_ns: int
    inode: int
    a: int
    b: int
    mtime_ns: int
    name: str
    other: str
    data: bytes

    def __str__(self) -> str:
        names = " ".join(name for name in (self.name, self.other) if name)
        return f"{self.kind} inode {self.inode} {names} {self.a},{self.b} {len(self.data)} bytes"


def why_not() -> str:
    """Why calls cannot be recorded here; '' if they can."""
    if os.environ.get("LD_PRELOAD"):
        return "calls cannot be recorded: something else is preloaded"
    return "" if shutil.which("cc") else "calls cannot be recorded: no C compiler (apt install gcc)"


@functools.cache
def library() -> str:
    """The preloaded library, newer than its source."""
    built = ROOT / "build" / "crash" / "calls.so"
    if not built.exists() or built.stat().st_mtime_ns < SOURCE.stat().st_mtime_ns:
        built.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=built.parent)
        os.close(handle)
        flags = ["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, "-o", draft, str(SOURCE), "-lpthread"], check=True)
        Path(draft).rename(built)
    return str(built)


def watch(folder: Path, log: Path) -> Callable[[], None]:
    """To be called between fork and exec: the program's calls that change the folder go to the end of the log."""
    settings = {
        "LD_PRELOAD": library(),
        "NSQ_CALLS_FOLDER": str(folder),
        "NSQ_CALLS_LOG": str(log),
    }

    def prepare() -> None:
        os.environ.update(settings)

    return prepare


def read_calls(log: Path) -> Iterator[Call]:
    data = memoryview(log.read_bytes())
    at = 0
    while at < len(data):
        head = HEAD.unpack_from(data, at)
        size, kind, thread, name_size, other_size, data_size, *numbers = head
        name_at = at + HEAD.size
        other_at = name_at + name_size
        data_at = other_at + other_size
        assert data_at + data_size == at + size
        begun_ns, ended_ns, inode, a, b, mtime_ns = numbers
        yield Call(
            chr(kind),
            thread,
            begun_ns,
            ended_ns,
            inode,
            a,
            b,
            mtime_ns,
            bytes(data[name_at:other_at]).decode(),
            bytes(data[other_at:data_at]).decode(),
            bytes(data[data_at : data_at + data_size]),
        )
        at += size
