"""The parent of nsqfast-run --workers and --reload: starts processes, starts them again, answers for all of them."""

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import aiohttp
import orjson

from nsqfast.app.options import Options
from nsqfast.app.page import OK, STARTING, STOPPING, Health, Page, write_registry
from nsqfast.app.worker import METRICS_VARIABLE, Worker, start_worker
from nsqfast.errors import NsqfastError
from nsqfast.program.extras import find_missing
from nsqfast.program.signals import watch_signals

LOOK_S = 0.5
# Folders with other people's sources, and without any.
LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})


def find_sources(folder: Path) -> dict[str, int]:
    """Each .py file below the folder, with the time of its last change."""
    found = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each[0] != "." and each not in LEFT_OUT]
        for name in files:
            if name.endswith(".py"):
                path = Path(place, name)
                try:
                    found[str(path)] = path.stat().st_mtime_ns
                except OSError:  # removed, or a link to nothing
                    continue
    return found


class Changes:
    """Compares with what was found before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = find_sources(folder)

    async def wait(self) -> str:
        """Return the path of one that has changed, once there is one."""
        while True:
            await asyncio.sleep(LOOK_S)
            found = await asyncio.to_thread(find_sources, self._folder)
            changed = dict(found.items() ^ self._known.items())
            self._known = found
            if changed:
                return min(changed)


log = logging.getLogger("nsqfast.app")

# More ends than that in so many seconds are no accident.
RESTARTS_MAX = 5
RESTARTS_S = 60.0
PAUSE_S = 1.0
LOOK_TIMEOUT_S = 2.0
NO_ANSWER = "no answer"


class WorkersFailedError(NsqfastError):
    """Starting them again would not help."""


class Supervisor:
    """One run."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()  # after each change another one
        self._workers: dict[int, Worker] = {}
        self._started = 0
        self._ends_s: deque[float] = deque(maxlen=RESTARTS_MAX + 1)

    async def run(self) -> int:
        """Until SIGTERM or SIGINT; WorkersFailedError: one cannot start, or they end again and again."""
        watch_signals(asyncio.get_running_loop(), self._stopping.set, None)
        with tempfile.TemporaryDirectory(prefix="nsqfast-run-") as name:
            async with self._open_page(Path(name)):
                keepers = [
                    asyncio.create_task(self._keep(Path(name), number))
                    for number in range(1, self._options.workers + 1)
                ]
                watcher = asyncio.create_task(self._watch())
                try:
                    await asyncio.gather(*keepers)
                finally:
                    self._stopping.set()
                    self._end_all()
                    watcher.cancel()
                    await asyncio.gather(watcher, *keepers, return_exceptions=True)
        return 0

    def _end_all(self) -> None:
        for worker in self._workers.values():
            worker.end()

    # -- one place for a worker

    async def _keep(self, folder: Path, number: int) -> None:
        stop = asyncio.create_task(self._stopping.wait())
        try:
            is_wanted = True
            while is_wanted and not self._stopping.is_set():
                self._started += 1
                changed = self._changed
                worker = await start_worker(self._options, folder, self._started)
                self._workers[number] = worker
                if changed.is_set():
                    worker.end()
                log.info("worker %d: process %d", number, worker.process.pid)
                end = asyncio.create_task(worker.process.wait())
                await asyncio.wait({stop, end}, return_when=asyncio.FIRST_COMPLETED)
                if self._stopping.is_set():
                    worker.end()
                is_wanted = await self._decide(worker, number, await end, changed)
        finally:
            stop.cancel()

    async def _decide(
        self, worker: Worker, number: int, status: int, changed: asyncio.Event
    ) -> bool:
        """Whether it is to be started again, now; WorkersFailedError: that would not help."""
        if worker.was_told or self._stopping.is_set():
            return True
        how = f"worker {number} {describe_end(status)}"
        if self._options.reload:
            log.warning("%s; it is started again after the next change", how)
            await self._wait_either(changed)
            return True
        if status == 0:
            log.info("%s, by itself", how)
            return False
        if not worker.is_ready:
            raise WorkersFailedError(f"{how} before it was ready")
        self._ends_s.append(time.monotonic())
        if len(self._ends_s) > RESTARTS_MAX and self._ends_s[-1] - self._ends_s[0] < RESTARTS_S:
            raise WorkersFailedError(
                f"{how}, and workers have ended {len(self._ends_s)} times in {RESTARTS_S:g} s"
            )
        log.warning("%s; it is started again in %g s", how, PAUSE_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), PAUSE_S)
        return True

    async def _wait_either(self, changed: asyncio.Event) -> None:
        """Until sources have changed, or the end."""
        waits = [asyncio.create_task(each.wait()) for each in (changed, self._stopping)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

    async def _watch(self) -> None:
        """With --reload: end the workers when sources change; whoever keeps one starts the next."""
        if not self._options.reload:
            return
        changes = Changes(Path.cwd())
        while True:
            log.info("%s has changed, starting again", await changes.wait())
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            self._end_all()

    # -- what others see

    @contextlib.asynccontextmanager
    async def _open_page(self, folder: Path) -> AsyncGenerator[None]:
        if not self._options.http_address:
            yield
            return
        has_metrics = not find_missing("prometheus")
        figures = os.environ.get(METRICS_VARIABLE, str(folder))
        write = partial(write_registry, folder=figures) if has_metrics else None
        page = Page(self._options.http_address, self._look, write)
        log.info("listening on %s", await page.start())
        try:
            yield
        finally:
            await page.close()

    async def _look(self) -> Health:
        """The worst of all workers, and each of them."""
        found = await asyncio.gather(*map(ask_worker, self._workers.values()))
        rows = [
            {"worker": number, "pid": worker.process.pid, **row}
            for (number, worker), row in zip(self._workers.items(), found, strict=True)
        ]
        states = [str(row["status"]) for row in found if row["status"] != OK]
        if self._stopping.is_set():
            state = STOPPING
        elif len(found) < self._options.workers:
            state = STARTING
        else:
            state = states[0] if states else OK
        return Health(state, {"workers": rows})


async def ask_worker(worker: Worker) -> dict[str, object]:
    """What its own /healthz says."""
    connector = aiohttp.UnixConnector(str(worker.page))
    timeout = aiohttp.ClientTimeout(LOOK_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get("http://worker/healthz") as answer,
        ):
            found: dict[str, object] = orjson.loads(await answer.read())
            return found
    except (OSError, TimeoutError, ValueError, aiohttp.ClientError):
        return {"status": NO_ANSWER if worker.is_ready else STARTING}


def describe_end(status: int) -> str:
    """In words."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
