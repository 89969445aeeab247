"""One of the processes of nsqfast-run --workers or --reload: what its parent and it know of each other."""

import asyncio
import contextlib
import contextvars
import ctypes
import os
import signal
import sys
import threading
from asyncio.subprocess import Process
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from nsqfast.app.options import Options
from nsqfast.program.logs import LEVELS

T = TypeVar("T")


class Threads:
    """From construction to `stop`. They are daemons: a function that never returns does not hold up the end."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._run, name=f"{name} {number}", daemon=True).start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    async def call(self, function: Callable[[], T]) -> T:
        """Call it in one of the threads, with the context variables of the caller."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        context = contextvars.copy_context()
        results: list[T] = []
        errors: list[BaseException] = []

        def finish() -> None:
            if not done.done():  # nobody waits any more
                done.set_result(None)

        def work() -> None:
            try:
                results.append(context.run(function))
            except BaseException as error:
                errors.append(error)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish)

        self._work.put(work)
        await done
        if errors:
            raise errors[0]
        return results[0]

    def stop(self) -> None:
        """End each thread once it has nothing to do."""
        for _ in range(self._count):
            self._work.put(None)


PARENT_VARIABLE = "NSQFAST_RUN_PARENT"
READY_VARIABLE = "NSQFAST_RUN_READY"
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's
PR_SET_PDEATHSIG = 1


class Worker:
    """As its parent sees it: the process, a file that is there once it was ready, and the socket of its page."""

    def __init__(self, process: Process, ready: Path, page: Path) -> None:
        self.process = process
        self.page = page
        self.was_told = False  # to end
        self._ready = ready

    @property
    def is_ready(self) -> bool:
        """Whether all its consumers have started."""
        return self._ready.exists()

    def end(self) -> None:
        """Have it stop in order."""
        self.was_told = True
        if self.process.returncode is None:
            self.process.terminate()


async def start_worker(options: Options, folder: Path, number: int) -> Worker:
    """Start one, whose files in the folder have this number."""
    ready, page = folder / f"{number}.ready", folder / f"{number}.sock"
    level = {value: word for word, value in LEVELS.items()}[options.log_level]
    flags = [f"--log-level={level}", *([f"--http-address={page}"] if options.http_address else [])]
    environment = {PARENT_VARIABLE: str(os.getpid()), READY_VARIABLE: str(ready)}
    if options.reload:
        # Python takes the code of a source that was changed within the same second, and kept its size, for its own.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "nsqfast.app.main",
        *flags,
        options.target,
        env={METRICS_VARIABLE: str(folder), **os.environ, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is for the parent, which tells its workers
    )
    return Worker(process, ready, page)


def follow_parent() -> None:
    """In a worker: stop in order when the parent ends, even if it is killed."""
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it ended before that
        sys.exit(1)
