"""One workload on one file system: recorded once, then judged in many states."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import signal
import threading
import time
from typing import TYPE_CHECKING

from durability.blocks.recording import Kind, Log, recorded
from durability.blocks.replay import Replay, choose_states
from durability.blocks.writeback import write_back
from durability.crash import workloads
from durability.crash.ledger import Ledger
from durability.crash.modes import ALWAYS, GO
from durability.crash.opening import judge_by_ledger
from support.server import start_nsqd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from durability.blocks.filesystems import FileSystem
    from durability.blocks.recording import Disk
    from durability.blocks.replay import State
    from durability.crash.found import Found
    from durability.crash.opening import Verdict
    from support.server import Server

PR_SET_PDEATHSIG = 1
WRITE_BACK_SECONDS = 0.005
DATA = "data"

_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """A broker that outlives its test would keep the file system busy."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclasses.dataclass
class Trial:
    """What was recorded, and between which moments a power cut means something."""

    title: str
    disk: Disk
    ledger: Ledger
    since_ns: int
    until_ns: int


@dataclasses.dataclass
class Result:
    """What the states of one workload on one file system had lost."""

    title: str
    entries: int = 0
    flushes: int = 0
    states: int = 0
    without_writes: int = 0  # states that lack writes that were not flushed
    failed: dict[State, Verdict] = dataclasses.field(default_factory=dict)

    def missing(self) -> int:
        return sum(verdict.missing_count for verdict in self.failed.values())

    def is_wrong(self) -> bool:
        """More than torn records: those that nobody was answered for may come where nothing tells what they are."""
        return any(verdict.missing or verdict.error for verdict in self.failed.values())

    def __str__(self) -> str:
        return (
            f"{self.title}: {self.entries} entries, {self.flushes} flushes; "
            f"{self.states} states, {self.without_writes} without unflushed writes; "
            f"{len(self.failed)} failed, {self.missing()} messages missing{self._other_faults()}"
        )

    def _other_faults(self) -> str:
        foreign = sum(len(verdict.foreign) for verdict in self.failed.values())
        errors = sum(bool(verdict.error) for verdict in self.failed.values())
        words = f", {foreign} never published" if foreign else ""
        return words + (f", {errors} not read to their end" if errors else "")

    def examples(self, count: int = 5) -> str:
        shown = [*self.failed.items()][:count]
        return "\n".join([str(self), *(f"{state}: {verdict}" for state, verdict in shown)])


@contextlib.contextmanager
def _writing_back(folder: Path) -> Iterator[None]:
    """As if the kernel wrote dirty pages back at once, whatever file they belong to, and flushed none of them."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(WRITE_BACK_SECONDS):
            for path in folder.iterdir():
                with contextlib.suppress(OSError), path.open("rb") as file:
                    write_back(file.fileno())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def record(
    program: Path,
    place: Path,
    file_system: FileSystem,
    workload: str,
    seed: int,
    implementation: str = "nsqfast",
    writes_back: bool = False,
) -> Trial:
    title = f"{workload} on {file_system.name}{', written back' if writes_back else ''}"
    ledger = Ledger()
    mode = GO if implementation == "go" else ALWAYS
    flags = workloads.flags_of(workload, mode)
    with recorded(program, place, file_system) as disk:
        data = disk.folder / DATA
        data.mkdir()

        def start() -> Server:
            return start_nsqd(implementation, data, *flags, prepare=die_with_parent)

        since_ns = time.monotonic_ns()
        with _writing_back(data) if writes_back else contextlib.nullcontext():
            workloads.run(workload, start, ledger, seed, mode=mode)
        until_ns = time.monotonic_ns()
    return Trial(title, disk, ledger, since_ns, until_ns)


def judge(
    trial: Trial, place: Path, open_folder: Callable[[Path], Found], count: int, seed: int
) -> Result:
    """`count` power cuts; `open_folder` says what a broker finds after each."""
    result = Result(trial.title)
    with contextlib.closing(Log(trial.disk.log)) as log:
        result.entries = len(log.entries)
        result.flushes = sum(entry.kind == Kind.FLUSH for entry in log.entries)
        replay = Replay(trial.disk, log, place)
        for state in choose_states(log, count, seed, trial.since_ns, trial.until_ns):
            with replay.mounted(state) as folder:
                found = _open(folder / DATA, open_folder)
            verdict = judge_by_ledger(found, trial.ledger, state.time_ns)
            result.states += 1
            result.without_writes += bool(replay.lost)
            if verdict:
                result.failed[state] = verdict
    return result


def _open(folder: Path, open_folder: Callable[[Path], Found]) -> Found:
    # Its name was not flushed yet, and an administrator makes it again.
    folder.mkdir(exist_ok=True)
    return open_folder(folder)
