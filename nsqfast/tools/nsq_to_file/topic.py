"""One topic on its way to disk: messages are written as they come, and finished once they are synced.

Writing and syncing happen in a thread, batch by batch, while the next batch comes in. A message is finished when the
sync that covers it is done, not before: at each --sync-interval, when as many wait as may be in flight, when a
connection may deliver few more, when a file was begun, and when the waiting messages take much memory.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import NoReturn

from nsqfast.client import Consumer
from nsqfast.client.batch import ArrayBatch
from nsqfast.tools.nsq_to_file.archive import Archive, Figures, MakePieces
from nsqfast.tools.shared.program import ToolError, log
from nsqfast.wire.gotext import os_error

# Messages that arrive singly are written a few at a time.
GATHER_S = 0.001
UNSYNCED_SIZE_MAX = 64 << 20  # bytes of bodies, which stay in memory until they are finished


class TopicWriter:
    """Active from `run` until its consumer is told to stop, or until the disk fails: ToolError."""

    def __init__(
        self,
        consumer: Consumer,
        archive: Archive,
        make_pieces: MakePieces,
        recover: Callable[[], None],
        threads: Executor,
        in_flight_max: int,
        sync_interval_s: float,
    ) -> None:
        self.consumer = consumer
        self._archive = archive
        self._make_pieces = make_pieces
        self._recover = recover
        self._threads = threads
        self._in_flight_max = in_flight_max
        self._sync_interval_s = sync_interval_s
        self._unsynced: list[ArrayBatch] = []
        self.unsynced_count = 0
        self._unsynced_size = 0  # bytes of bodies
        # One step at a time, in the order of the requests.
        self._turn = asyncio.Lock()
        self._is_over = asyncio.Event()
        self._failure: ToolError | None = None

    @property
    def figures(self) -> Figures:
        """Counts since the start."""
        return self._archive.figures

    def oldest_s(self) -> float:
        """Age of the oldest message that was written but not finished; 0 if there is none."""
        oldest_ns = min((int(batch.timestamps.min()) for batch in self._unsynced), default=None)
        return 0.0 if oldest_ns is None else max(0.0, time.time() - oldest_ns / 1e9)

    async def run(self) -> None:
        """Return when the consumer was told to stop, all written messages are finished, and the file is closed."""
        await self._step(self._recover_files)
        ticks = asyncio.create_task(self._tick_on())
        try:
            await self._write_on()
        finally:
            self._is_over.set()
            await ticks
        await self.reopen()

    def _recover_files(self) -> bool:
        self._recover()
        return True

    async def reopen(self) -> None:
        """Sync, finish and close; the next message opens a new file."""

        def close() -> bool:
            self._archive.sync()
            self._archive.close()
            return True

        await self._step(close)

    async def _tick_on(self) -> None:
        def tick() -> bool:
            self._archive.tick()
            return True

        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while not self._is_over.is_set():
            next_s = max(next_s + self._sync_interval_s, loop.time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), next_s - loop.time())
                return
            await self._step(tick)

    async def _write_on(self) -> None:
        consumer = self.consumer
        async for batch in consumer.arrays(self._in_flight_max, GATHER_S):
            await self._step(partial(self._write, batch, consumer.is_starved), batch)

    def _write(self, batch: ArrayBatch, must_sync: bool) -> bool:
        self._archive.write(self._make_pieces(batch))
        is_full = (
            self.unsynced_count + len(batch) >= self._in_flight_max
            or self._unsynced_size + len(batch.bodies) >= UNSYNCED_SIZE_MAX
        )
        if not (is_full or must_sync or self._archive.is_sync_due):
            return False
        self._archive.sync()
        return True

    async def _step(self, step: Callable[[], bool], batch: ArrayBatch | None = None) -> None:
        """Run it in the thread; if it returns true, everything written is on disk and gets finished.

        ToolError: it failed, or an earlier step did. Then the state of written data is unknown, and nothing is
        finished.
        """
        async with self._turn:
            if self._failure is not None:
                raise self._failure
            try:
                is_synced = await asyncio.get_running_loop().run_in_executor(self._threads, step)
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                self._fail(ToolError(f"[{self.consumer.name}] {where}{os_error(error)}"))
            except ToolError as error:
                self._fail(ToolError(f"[{self.consumer.name}] {error}"))
            if batch is not None:
                self._unsynced.append(batch)
                self.unsynced_count += len(batch)
                self._unsynced_size += len(batch.bodies)
            if is_synced:
                self._finish_synced()

    def _fail(self, failure: ToolError) -> NoReturn:
        self._failure = failure
        self.consumer.request_stop()
        raise failure

    def _finish_synced(self) -> None:
        if self._unsynced:
            log.info("[%s] syncing %d records to disk", self.consumer.name, self.unsynced_count)
        for batch in self._unsynced:
            batch.finish()
        self._unsynced.clear()
        self.unsynced_count = self._unsynced_size = 0
