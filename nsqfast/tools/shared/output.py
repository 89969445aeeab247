"""What a tool prints: standard output that does not stop it, and a progress bar on stderr, if somebody is watching."""

import asyncio
import contextlib
import os
import queue
import select
import stat
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from nsqfast.tools.shared.program import OutputClosedError, ToolError
from nsqfast.wire.gotext import os_error

STDOUT = 1


class Output:
    """Standard output for tools that print continuously. Create it in a running loop.

    A separate thread writes, so a pipe that nobody reads stops neither heartbeats nor signals. Callers wait for their
    write, which bounds the pending data. The process may end while a write is under way; nobody waits for the thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True, name="nsqfast: output")
        self._thread.start()

    async def write(self, data: bytes) -> None:
        """Return once the kernel has everything; OutputClosedError, or a ToolError with the reason of the failure."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((data, done))
        await done

    def watch_closed(self, tell: Callable[[], None]) -> None:
        """Call `tell` once a pipe has no reader any more, even when there is nothing to write."""
        if stat.S_ISFIFO(os.fstat(STDOUT).st_mode):

            def closed() -> None:
                self._loop.remove_reader(STDOUT)
                tell()

            # The writing end of a pipe is never readable, so an event means an error, and there is only one.
            self._loop.add_reader(STDOUT, closed)

    def _work(self) -> None:
        while True:
            data, done = self._jobs.get()
            if done.cancelled():
                continue
            error: OSError | None = None
            try:
                _write_all(data)
            except OSError as reason:
                error = reason
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(_set_outcome, done, error)


def _write_all(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(STDOUT, rest) :]
        except BlockingIOError:  # somebody with the same terminal or pipe made it non-blocking
            wait = select.poll()
            wait.register(STDOUT, select.POLLOUT)
            wait.poll()


def _set_outcome(done: "asyncio.Future[None]", error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    elif isinstance(error, BrokenPipeError):
        done.set_exception(OutputClosedError("nobody reads standard output"))
    else:
        done.set_exception(ToolError(f"failed to write to standard output - {os_error(error)}"))


INTERVAL_S = 0.25


def is_watched() -> bool:
    """Whether a bar would be seen."""
    return sys.stderr.isatty()


class Progress:
    """`total` is what there is to do, such as bytes, or None if unknown. Shows messages, rate and time left."""

    def __init__(self, title: str, total: float | None) -> None:
        # Imported late, because most runs have nobody watching.
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._begun_s = time.monotonic()
        self._next_s = 0.0
        self._bar = Bar(
            TextColumn(title, markup=False),
            BarColumn(),
            TextColumn("{task.fields[messages]} messages, {task.fields[rate]}/s, left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=total, messages="0", rate="0")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        place: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, done: float, messages: int, rate: float | None = None) -> None:
        """This much and so many messages are done; drawn a few times a second, however often it is called.

        The rate is that since the beginning, unless the caller knows a better one.
        """
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        # Not earlier: lines about connections should appear above the bar.
        self._bar.start()
        if rate is None:
            rate = messages / (now_s - self._begun_s) if now_s > self._begun_s else 0.0
        self._bar.update(self._task, completed=done, messages=f"{messages:,}", rate=f"{rate:,.0f}")
        self._bar.refresh()
