"""Starts brokers as sub-processes: nsqfast's or Go's, on free ports, in their own folder.

Nothing here sleeps: ports and readiness are read from the broker's own log lines.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from support.ports import hold_ports_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Address = tuple[str, int]

ROOT = Path(__file__).resolve().parents[2]
LISTENING = re.compile(r"(TCP|HTTP|HTTPS|HTTP-ADMIN): listening on (\S+):(\d+)$")
NO_GO = "no NSQ programs written in Go: run `make go-nsq`, or set NSQ_GO_BIN to their folder"
# aiohttp reads those of the machine, more than a hundred certificates, when it is imported.
NO_AUTHORITIES = {"SSL_CERT_FILE": os.devnull}
# An nsqd with a commit log, which is as small as the default of --max-body-size lets it be.
LOG_MODES = ("always", "interval")
SMALL_LOG = f"--commit-log-size={32 << 20}"
DRAINED = 3  # nsqd's exit status when it was drained
START_SECONDS_MAX = 50.0
STOP_SECONDS_MAX = 50.0
LOG_LINES_MAX = 100_000


def go_folder() -> Path | None:
    """The folder with Go's nsqd and its tools, or None."""
    named = os.environ.get("NSQ_GO_BIN")
    folder = Path(named) if named else ROOT / ".go-nsq"
    return folder if (folder / "nsqd").exists() else None


def go_program(name: str) -> str:
    folder = go_folder()
    if folder is None:
        raise FileNotFoundError(NO_GO)
    return str(folder / name)


def program(name: str, implementation: str) -> list[str]:
    """One of NSQ's daemons; nsqfast's are "memory", whose nsqd keeps everything there, and LOG_MODES, too."""
    if implementation == "go":
        return [go_program(name)]
    engine = ["env", "NSQFAST_ENGINE=memory"] if implementation == "memory" else []
    log = [f"--durable={implementation}", SMALL_LOG] if implementation in LOG_MODES else []
    return [*engine, sys.executable, "-m", f"nsqfast.{name}.main", *log]


def freeze(process: subprocess.Popen[bytes]) -> None:
    """None of its threads runs when this returns; SIGCONT has them go on.

    The signal alone is not enough: until one of the threads has taken it, the others go on.
    """
    process.send_signal(signal.SIGSTOP)
    changed = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert changed is not None
    assert changed.si_code == os.CLD_STOPPED


def is_asleep(pid: int) -> bool:
    """Whether each of its threads waits for something other than a disk: proc(5), the third field of `stat`."""
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):  # one has ended meanwhile
        return False
    return all(stat.rpartition(")")[2].split()[0] == "S" for stat in stats)


class Server:
    """One running broker; `tcp` and `http` are the addresses that it really bound."""

    def __init__(
        self,
        program: Sequence[str],
        listeners: Sequence[str] = ("TCP", "HTTP"),
        prepare: Callable[[], None] | None = None,
        seconds_max: float = START_SECONDS_MAX,
    ) -> None:
        self._lines: collections.deque[str] = collections.deque(maxlen=LOG_LINES_MAX)
        self.addresses: dict[str, Address] = {}
        self._changed = threading.Condition()
        self._seconds_max = seconds_max
        self._ended = False
        self._killed = False
        self._is_go = Path(program[0]).parent == go_folder()
        self.process = subprocess.Popen(
            list(program),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=None if prepare else NO_AUTHORITIES | os.environ,  # which `prepare` may change
            preexec_fn=prepare,  # noqa: PLW1509 - only resource limits are set there
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if not self._wait(lambda: all(name in self.addresses for name in listeners), seconds_max):
            self.kill()
            raise AssertionError(f"{program} did not start:\n" + "\n".join(self.lines))
        if self._is_go:
            self._wait_until_signals_count()

    @property
    def tcp(self) -> Address:
        return self.addresses["TCP"]

    @property
    def http(self) -> Address:
        return self.addresses["HTTP"]

    @property
    def https(self) -> Address:
        return self.addresses["HTTPS"]

    @property
    def lines(self) -> list[str]:
        """What it has logged, as of now: the reader goes on."""
        with self._changed:
            return list(self._lines)

    def forget_lines(self) -> None:
        """What it has logged up to now."""
        with self._changed:
            self._lines.clear()

    @property
    def stderr(self) -> str:
        return "\n".join(self.lines)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as pipe:
            for raw in pipe:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                with self._changed:
                    self._lines.append(line)
                    found = LISTENING.search(line)
                    if found:
                        self.addresses[found[1]] = ("127.0.0.1", int(found[3]))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _wait(self, reached: Callable[[], bool], seconds_max: float = START_SECONDS_MAX) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or reached(), seconds_max)
            return reached()

    def _wait_until_signals_count(self) -> None:
        """Go's programs listen a moment before they heed signals, and die of one that comes in between.

        Nothing shows that they have got there but that all of their threads sleep.
        """
        deadline_s = time.monotonic() + self._seconds_max
        while self.process.poll() is None and not is_asleep(self.process.pid):
            assert time.monotonic() < deadline_s, "it is never at rest:\n" + self.stderr
            os.sched_yield()

    def wait_for_line(self, text: str, seconds_max: float = START_SECONDS_MAX) -> None:
        if not self._wait(lambda: any(text in line for line in self.lines), seconds_max):
            raise AssertionError(f"no line with {text!r} in:\n{self.stderr}")

    def stop(self) -> None:
        """An orderly stop, as a supervisor asks for it; nothing when it was killed before."""
        if self._killed:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._join()
        assert self.process.returncode in {0, DRAINED}, self.stderr

    def kill(self) -> None:
        """Death without warning."""
        self._killed = True
        if self.process.poll() is None:
            self.process.kill()
        self._join()

    def freeze(self) -> None:
        """It keeps its connections and does nothing any more when this returns."""
        freeze(self.process)

    def thaw(self) -> None:
        """It goes on."""
        self.process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """From before the first line of the block to its end."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def _join(self) -> None:
        try:
            self.process.wait(max(STOP_SECONDS_MAX, self._seconds_max))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            raise AssertionError("did not stop when asked:\n" + self.stderr) from None
        # It may be started again at these addresses, or has to be missed at them.
        hold_ports_left([port for _, port in self.addresses.values()])
        self._reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # A test that already failed must not be hidden by a broker that stops badly.
        if kind is None:
            self.stop()
        else:
            self.kill()

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def start_nsqd(
    implementation: str,
    folder: Path,
    *flags: str,
    listeners: Sequence[str] = ("TCP", "HTTP"),
    prepare: Callable[[], None] | None = None,
    seconds_max: float = START_SECONDS_MAX,
) -> Server:
    command = [
        *program("nsqd", implementation),
        f"--data-path={folder}",
        "--tcp-address=127.0.0.1:0",
        "--http-address=127.0.0.1:0",
        "--broadcast-address=127.0.0.1",
        *flags,
    ]
    return Server(command, listeners, prepare, seconds_max)


def start_nsqlookupd(implementation: str, *flags: str) -> Server:
    addresses = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    command = [*program("nsqlookupd", implementation), *addresses]
    return Server([*command, "--broadcast-address=127.0.0.1", *flags])
