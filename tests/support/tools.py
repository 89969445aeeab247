"""Runs NSQ's utilities, ours or Go's, as a script would: words in, output and exit status out."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

import psutil

from support.programs import heed_interrupts
from support.server import ROOT, go_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SECONDS_MAX = 50


def tool_command(name: str, implementation: str, *flags: object) -> list[str]:
    """`name` is as Go has it (nsq_to_file); those that Go lacks are ours alone (replay)."""
    words = [str(flag) for flag in flags]
    if implementation == "go":
        return [go_program(name), *words]
    return [sys.executable, "-m", f"nsqfast.tools.{name}.main", *words]


def run_tool(
    name: str,
    implementation: str,
    *flags: object,
    stdin: bytes = b"",
    seconds_max: int = SECONDS_MAX,
) -> subprocess.CompletedProcess[bytes]:
    """One that ends by itself."""
    return subprocess.run(
        tool_command(name, implementation, *flags),
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        timeout=seconds_max,
        check=False,
    )


def check_command_line(
    name: str, implementation: str, words: Iterable[object], status: int
) -> subprocess.CompletedProcess[bytes]:
    """It ends at once with that status: 0 for help, 2 for flags that cannot be read, and then with a hint."""
    done = run_tool(name, implementation, *words)
    ours = implementation == "nsqfast"
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr
    assert (b"Usage: " in done.stdout) == (bool(done.stdout)) == (ours and status == 0)
    hint = f"see nsqfast-{name.replace('_', '-')} --help" if ours else "Usage of"
    assert (hint.encode() in done.stderr) == (status == 2 or (status == 0 and not ours))
    return done


def read_terminal(fd: int, until: bytes | None = None) -> bytes:
    """What is drawn on a terminal until that is, or its other end is closed."""
    data = b""
    deadline_s = time.monotonic() + SECONDS_MAX
    while until is None or until not in data:
        assert select.select([fd], [], [], deadline_s - time.monotonic())[0], data
        try:
            data += os.read(fd, 1 << 16)
        except OSError:  # Linux's word for the end of a terminal
            break
    return data


def await_handler(process: subprocess.Popen[bytes]) -> None:
    """Return once SIGTERM does not simply kill it any more: a program that just began has no handler yet."""
    bit = 1 << (signal.SIGTERM - 1)
    deadline_s = time.monotonic() + SECONDS_MAX
    while process.poll() is None:
        caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
        if caught is None or int(caught[1], 16) & bit:
            return
        assert time.monotonic() < deadline_s, "it never heeds SIGTERM"
        time.sleep(0.01)


class Tool:
    """One that runs until it is told to end; `out` and `err` are what it has written so far."""

    def __init__(
        self,
        command: list[str],
        *,
        prepare: Callable[[], None] | None = None,
        stdin: int | BinaryIO = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        **environment: str,
    ) -> None:
        def begin() -> None:
            heed_interrupts()
            if prepare is not None:
                prepare()

        self.out = b""
        self.err = b""
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment,
            preexec_fn=begin,  # noqa: PLW1509 - it sets signals and limits
        )
        self._readers = [
            threading.Thread(target=self._read, args=(name,), daemon=True)
            for name, pipe in (("out", self.process.stdout), ("err", self.process.stderr))
            if pipe is not None
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self, name: str) -> None:
        pipe = self.process.stdout if name == "out" else self.process.stderr
        assert pipe is not None
        while data := os.read(pipe.fileno(), 1 << 16):
            with self._changed:
                setattr(self, name, getattr(self, name) + data)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, is_there: Callable[[Tool], object]) -> None:
        """Return once that holds of what was written; fail when the tool ends before."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: is_there(self) or self.process.poll() is not None, SECONDS_MAX
            )
            assert found, f"not in {SECONDS_MAX} s:\n{self.text}"
            assert is_there(self), f"it ended ({self.process.poll()}) before:\n{self.text}"

    def end(self, number: int | None = signal.SIGTERM, seconds_max: float = SECONDS_MAX) -> int:
        """Send the signal, if any; return how it ended, with all that it wrote in `out` and `err`."""
        if number == signal.SIGTERM:
            await_handler(self.process)
        if number is not None:
            self.process.send_signal(number)
        status = self.process.wait(seconds_max)
        for reader in self._readers:
            reader.join(SECONDS_MAX)
        return status

    def kill(self) -> None:
        """Nothing of it is left when it returns."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(SECONDS_MAX)
        for reader in self._readers:
            reader.join(SECONDS_MAX)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def kill_all(self) -> None:
        """With all that it has started: a JVM, say."""
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):  # one may end with the one before
                    child.kill()
        self.kill()

    @property
    def text(self) -> str:
        return (self.out + self.err).decode(errors="replace")
