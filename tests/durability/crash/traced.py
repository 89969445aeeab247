"""Go's nsqd as the control: it calls the kernel by itself, so that its calls are recorded by strace, not preloaded."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from durability.crash import workloads
from durability.crash.clients import Broker
from durability.crash.ledger import Ledger
from durability.crash.log import (
    CUT,
    OPENED,
    RENAMED,
    SYNC_BEGAN,
    SYNC_ENDED,
    UNLINKED,
    WRITTEN,
    Call,
)
from durability.crash.modes import GO
from durability.crash.opening import clear
from durability.crash.replay import Recording, check_calls
from support.server import Server, go_program

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACED = "openat,write,pwrite64,lseek,ftruncate,fsync,fdatasync,renameat,unlinkat"
LINE = re.compile(r"(\d+)\.(\d{6}) (\w+)\((.*)\) += (-?\d+)\S*.* <(\d+)\.(\d{6})>")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
SECONDS_MAX = 10


def why_not() -> str:
    """Why Go's calls cannot be recorded here; '' if they can."""
    if shutil.which("strace") is None:
        return "the calls of Go's nsqd cannot be recorded: apt install strace"
    done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return "strace is not permitted" if done.returncode else ""


def record_go(name: str, place: Path, seed: int) -> Recording:
    """The workload against Go's nsqd, killed at its end."""
    folder, logs = clear(place / "data"), clear(place / "strace")
    ledger = Ledger()
    offset_ns = time.time_ns() - time.monotonic_ns()
    command = [
        *f"strace -ff -qq -ttt -T -xx -s 10000000 -e trace={TRACED} -o {logs}/log".split(),
        go_program("nsqd"),
        f"--data-path={folder}",
        "--tcp-address=127.0.0.1:0",
        "--http-address=127.0.0.1:0",
        *workloads.flags_of(name, GO),
    ]
    broker = Broker(lambda: Server(command), ledger)
    try:
        workloads.WORKLOADS[name][0](broker, ledger, seed)
    finally:
        _kill_child(broker.server)
    calls = list(Trace(folder, offset_ns).read(logs))
    recording = Recording(f"go {name}", ledger, calls, time.monotonic_ns(), GO)
    check_calls(recording, folder, unfinished_max=1)
    return recording


def _kill_child(strace: Server) -> None:
    """strace writes the end of its log by itself."""
    pid = strace.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    strace.process.wait(SECONDS_MAX)
    strace.kill()


class Trace:
    """Lines of strace as the recorder's calls; inode numbers are of our own making."""

    def __init__(self, folder: Path, offset_ns: int) -> None:
        self.folder = os.fsencode(folder)
        self.offset_ns = offset_ns
        self.inodes: dict[str, int] = {"": 1}  # by name; the folder itself has none
        self.open_files: dict[int, int] = {}  # inode by descriptor
        self.positions: dict[int, int] = {}
        self.inode_count = 1

    def read(self, logs: Path) -> Iterator[Call]:
        lines = []
        for log in logs.iterdir():
            thread = int(log.suffix[1:])
            for line in log.read_text().splitlines():
                found = LINE.fullmatch(line)
                if found is None:
                    continue
                begun_ns = int(found[1] + found[2]) * 1000 - self.offset_ns
                ended_ns = begun_ns + int(found[6] + found[7]) * 1000
                if found[3] in {"fsync", "fdatasync"}:
                    lines.append((begun_ns, begun_ns, thread, "began", found[4], int(found[5])))
                lines.append((ended_ns, begun_ns, thread, found[3], found[4], int(found[5])))
        for ended_ns, begun_ns, thread, name, words, result in sorted(lines):
            if result < 0:
                continue
            for kind, inode, a, b, names, data in self._call(name, words, result):
                old, new = (*names, "", "")[:2]
                yield Call(kind, thread, begun_ns, ended_ns, inode, a, b, 0, old, new, data)

    def _name(self, text: bytes) -> str | None:
        if text == self.folder:
            return ""
        head, _, name = text.rpartition(b"/")
        return name.decode() if head == self.folder else None

    def _call(
        self, name: str, words: str, result: int
    ) -> Iterator[tuple[str, int, int, int, tuple[str, ...], bytes]]:
        texts = [bytes.fromhex(text.replace("\\x", "")) for text in TEXT.findall(words)]
        if name == "openat":
            yield from self._open(texts[0], words, result)
        elif name == "renameat":
            old, new = map(self._name, texts)
            if old is not None and new is not None:
                self.inodes[new] = self.inodes.pop(old)
                yield RENAMED, 0, 0, 0, (old, new), b""
        elif name == "unlinkat":
            removed = self._name(texts[0])
            if removed is not None:
                self.inodes.pop(removed, None)
                yield UNLINKED, 0, 0, 0, (removed,), b""
        elif (inode := self.open_files.get(int(re.match(r"\d+", words)[0]), 0)) != 0:  # type: ignore[index]
            yield from self._on_file(name, inode, words, texts, result)

    def _open(
        self, path: bytes, words: str, fd: int
    ) -> Iterator[tuple[str, int, int, int, tuple[str, ...], bytes]]:
        name = self._name(path)
        self.open_files.pop(fd, None)
        if name is None:
            return
        is_new = name not in self.inodes
        if is_new:
            self.inode_count += 1
            self.inodes[name] = self.inode_count
        self.open_files[fd] = self.inodes[name]
        self.positions[fd] = 0
        flags = os.O_TRUNC if "O_TRUNC" in words else 0
        if is_new or flags:
            yield OPENED, self.inodes[name], flags, is_new, (name,), b""

    def _on_file(
        self, name: str, inode: int, words: str, texts: list[bytes], result: int
    ) -> Iterator[tuple[str, int, int, int, tuple[str, ...], bytes]]:
        fd = int(words.partition(",")[0])
        if name == "lseek":
            self.positions[fd] = result
        elif name == "write":
            position = self.positions[fd]
            self.positions[fd] += result
            yield WRITTEN, inode, position, 0, (), texts[0][:result]
        elif name == "pwrite64":
            yield WRITTEN, inode, int(words.rpartition(",")[2]), 0, (), texts[0][:result]
        elif name == "ftruncate":
            yield CUT, inode, int(words.rpartition(",")[2]), 0, (), b""
        elif name == "began":
            yield SYNC_BEGAN, inode, 0, 0, (), b""
        elif name in {"fsync", "fdatasync"}:
            yield SYNC_ENDED, inode, 0, 0, (), b""
