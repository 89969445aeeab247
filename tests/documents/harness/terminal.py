"""A bash into which a page's commands are typed, block by block, and what it has printed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from .daemons import list_descendants

if TYPE_CHECKING:
    from pathlib import Path

# It reads the names of files with commands from one descriptor, and says on another how a block ended; neither is
# handed on. In the first terminal a command that fails ends the bash, and jobs have process groups of their own, as in
# a reader's terminal, so that those in the background heed SIGINT. In the others a Ctrl-C may end what runs, and bash
# goes on.
DRIVER = r"""
set -o pipefail
[ "$1" ] || set -m
while IFS= read -r -u TYPED block; do
    [ "$1" ] || set -e
    . "$block" TYPED<&- DONE>&-
    status=$?
    set +e
    echo $status >&DONE
done
"""
POLL_S = 0.02
STOP_SECONDS_MAX = 10


class Terminal:
    """One bash with its output in two files."""

    def __init__(
        self,
        scratch: Path,
        name: str,
        folder: Path,
        environment: dict[str, str],
        *,
        is_lasting: bool,
    ) -> None:
        self._scratch = scratch
        self._name = name
        self._blocks = 0
        self.is_busy = False
        self._out = scratch / f"{name}.out"
        self._err = scratch / f"{name}.err"
        self._starts = [self._size(self._out), self._size(self._err)]
        blocks, self._typed = os.pipe()
        self._done, done = os.pipe()
        with self._out.open("ab") as out, self._err.open("ab") as err:
            script = DRIVER.replace("TYPED", str(blocks)).replace("DONE", str(done))
            self.process = subprocess.Popen(
                ["bash", "--norc", "-c", script, "bash", "lasting" * is_lasting],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=environment,
                pass_fds=(blocks, done),
                start_new_session=True,
                # Background jobs of a script ignore it, and bash could not change that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads
            )
        os.close(blocks)
        os.close(done)

    @staticmethod
    def _size(path: Path) -> int:
        return path.stat().st_size if path.exists() else 0

    def type(self, commands: str) -> None:
        """Begin with these; what is printed from now on is theirs."""
        self._blocks += 1
        path = self._scratch / f"{self._name}-{self._blocks}-{self.process.pid}.sh"
        path.write_text(commands, encoding="utf-8")
        self._starts = [self._size(self._out), self._size(self._err)]
        self.is_busy = True
        # A bash that has ended does not read it, and wait() says how it ended.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._typed, f"{path}\n".encode())

    def wait(self, seconds: float) -> int | None:
        """The status of what was typed: 0, or that with which bash has ended; None if it is not done by then."""
        deadline = time.monotonic() + seconds
        while self.is_busy:
            readable, _, _ = select.select([self._done], [], [], POLL_S)
            if readable and (told := os.read(self._done, 4)):
                self.is_busy = False
                return int(told)
            if (status := self.process.poll()) is not None:
                self.is_busy = False
                return status
            if time.monotonic() > deadline:
                return None
        return self.process.poll() or 0

    def interrupt(self, seconds: float) -> None:
        """A Ctrl-C to what runs there, which has to end by then."""
        self._signal(signal.SIGINT)
        if not self._is_idle_by(time.monotonic() + seconds) or self.wait(seconds) is None:
            raise TimeoutError(f"terminal {self._name}: still busy after a Ctrl-C")

    def close(self) -> None:
        """End whatever it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._signal(number)
            if self._is_idle_by(time.monotonic() + STOP_SECONDS_MAX):
                break
        self.process.kill()
        self.process.wait()
        os.close(self._typed)
        os.close(self._done)

    def _signal(self, number: int) -> None:
        for process_id in list_descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, number)

    def _is_idle_by(self, deadline: float) -> bool:
        while list_descendants(self.process.pid):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    @property
    def printed(self) -> tuple[str, str]:
        """What came on standard output and standard error since the last block was typed."""
        return self._read(self._out, self._starts[0]), self._read(self._err, self._starts[1])

    def mark_seen(self) -> None:
        """What has been printed so far has been compared."""
        self._starts = [self._size(self._out), self._size(self._err)]

    @staticmethod
    def _read(path: Path, start: int) -> str:
        with path.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")
