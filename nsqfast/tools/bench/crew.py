"""The worker processes, as the parent sees them: it starts and stops them together, and receives their reports one by
one.

They are stopped through the table of totals: its last row belongs to no worker, and a number there that is beyond every
target ends all of them cleanly, with their measurements.
"""

import contextlib
import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from typing import Protocol

from nsqfast.tools.bench.options import UNREACHABLE, Plan
from nsqfast.tools.bench.worker import (
    FINISHED,
    PUBLISHED,
    RECEIVED,
    RECEIVED_BYTES,
    REQUEUED,
    ROW_SIZE,
    STARTED_NS,
    Report,
    work,
)

# A stopped worker waits up to 10 s for answers and then disconnects.
END_TIMEOUT_S = 20.0
LOOK_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all workers; `started_ns` is 0 until the first one runs."""

    published: int
    received: int
    finished: int
    requeued: int
    received_bytes: int
    started_ns: int


class Counts(Protocol):
    """Any object with counts of messages."""

    @property
    def published(self) -> int: ...
    @property
    def received(self) -> int: ...
    @property
    def finished(self) -> int: ...


def counted(counts: Counts, mode: str) -> int:
    """The messages that this mode's rate counts."""
    if mode == "pub":
        return counts.published
    return counts.received if mode == "latency" else counts.finished


class Crew:
    """The processes of one run."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        size = len(plan.workers)
        self._totals = context.RawArray("q", ROW_SIZE * (size + 1))
        # Kept, because its semaphores are freed with the parent's object, and processes drop their arguments.
        self._barrier = context.Barrier(size)
        pipes = [context.Pipe(duplex=False) for _ in plan.workers]
        self._inboxes = [inbox for inbox, _ in pipes]
        self._report_pipes = [report_pipe for _, report_pipe in pipes]
        self._processes = [
            context.Process(
                target=work, args=(worker, self._totals, self._barrier, report_pipe), daemon=True
            )
            for worker, report_pipe in zip(plan.workers, self._report_pipes, strict=True)
        ]
        self.is_stopped = False

    def start(self) -> None:
        """Start all; they wait for each other before the first message."""
        with _without_sigint():
            for process, report_pipe in zip(self._processes, self._report_pipes, strict=True):
                process.start()
                # Close our copy of the worker's end, so that its death ends the pipe.
                report_pipe.close()

    def stop(self) -> None:
        """Make all of them finish; callable from a signal handler."""
        self.is_stopped = True
        last = len(self._totals) - ROW_SIZE
        self._totals[last + PUBLISHED] = self._totals[last + FINISHED] = UNREACHABLE

    def kill(self) -> None:
        """End all of them at once; callable from a signal handler."""
        for process in self._processes:
            if process.pid is not None:
                process.kill()

    def close(self) -> None:
        """Clean up; nothing of them is left on return."""
        self.kill()
        for process in self._processes:
            if process.pid is not None:
                process.join()
        for inbox in self._inboxes:
            inbox.close()

    def totals(self) -> Totals:
        """The current sums."""
        rows = [
            self._totals[at : at + ROW_SIZE] for at in range(0, len(self._totals) - 1, ROW_SIZE)
        ]
        workers = rows[:-1]
        started = [row[STARTED_NS] for row in workers if row[STARTED_NS]]
        return Totals(
            published=sum(row[PUBLISHED] for row in workers),
            received=sum(row[RECEIVED] for row in workers),
            finished=sum(row[FINISHED] for row in workers),
            requeued=sum(row[REQUEUED] for row in workers),
            received_bytes=sum(row[RECEIVED_BYTES] for row in workers),
            started_ns=min(started, default=0),
        )

    def listen(self, look: Callable[[], None] | None) -> list[Report]:
        """Yield the reports of all workers in order of arrival; calls `look` now and then meanwhile."""
        reports: list[Report] = []
        waiting = list(self._inboxes)
        kill_at = math.inf
        while waiting:
            for inbox in wait(waiting, LOOK_INTERVAL_S):
                assert isinstance(inbox, Pipe)
                waiting.remove(inbox)
                reports.append(_receive(inbox))
                if reports[-1].error is not None:
                    self._end_others()
            if look:
                look()
            if self.is_stopped:
                kill_at = min(kill_at, time.monotonic() + END_TIMEOUT_S)
            if time.monotonic() >= kill_at:
                self.kill()
        return reports

    def _end_others(self) -> None:
        """A worker has failed; if that was before the start, the others would wait for it."""
        if self.totals().started_ns:
            self.stop()
        else:
            self.kill()


def _receive(inbox: Pipe) -> Report:
    try:
        report = inbox.recv()
    except (EOFError, OSError):
        return Report(error="a worker process died")
    assert isinstance(report, Report)
    return report


@contextlib.contextmanager
def _without_sigint() -> Iterator[None]:
    """Block SIGINT in children, which inherit the mask: Ctrl-C would reach every process of the terminal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
