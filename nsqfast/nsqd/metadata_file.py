"""Keeps nsqd.dat up to date while the broker runs. A thread waits for its fsyncs, never the loop."""

import asyncio
import errno
import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.net.slices import run_slice
from nsqfast.nsqd.metadata import (
    FILE_NAME,
    Listing,
    keep_aside,
    load,
    refuse_folder,
    remove_leftovers,
    try_writing,
    write,
)
from nsqfast.wire.gotext import os_error
from nsqfast.wire.names import is_ephemeral

if TYPE_CHECKING:
    from nsqfast._ext.broker.topics import Topics

INTERVAL_S = 0.25  # between two writes, if nobody waits for the second
BURST_S = 2.0  # how far awaited writes may run ahead of that: eight of them
PIECE_UNITS = 30  # of a budget: the cost of a piece of the file's text
RETRY_S = 1.0
COMPLAINT_S = 60.0  # between two lines about a write that keeps failing
log = logging.getLogger("nsqd")


class MetadataFile:
    """Keeps the file up to date: writes it in the background after a change, and again if that failed.

    Each snapshot has a number, and an older one never replaces a newer one, whichever reaches the disk first. While one
    is being made or written, further changes wait and are written together, a few times a second at most. Each topic
    appears as it was at some moment between the start and the end of the snapshot.
    """

    def __init__(self, topics: "Topics", folder: str) -> None:
        self.path = os.path.join(folder, FILE_NAME)  # noqa: PTH118
        self.health = "OK"  # or NOK and the reason why the last write failed
        self._topics = topics
        self._folder = folder
        self._content: bytes | None = None  # None = unusable
        self._listing = Listing(topics)
        self._taken = 0
        self._written = 0
        self._writing = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_wanted = False
        self._is_busy = False
        self._waiters: list[asyncio.Future[None]] = []  # for the next snapshot
        self._task: asyncio.Future[None] | None = None  # for the snapshot being made and written
        self._timer: asyncio.Handle | None = None  # until its start
        self._timer_s = 0.0  # the time of that
        self._started_s = self._due_s = -INTERVAL_S  # the last start; when the next one is allowed
        self._failing_since = 0.0  # 0 = it is not
        self._complained = 0.0

    def load(self) -> None:
        """Create every topic and channel in the file; OptionsError if the operator has to fix something first."""
        try:
            remove_leftovers(self._folder)
            refuse_folder(self._folder)
            self._content = load(self._topics, self._folder)
        except OSError as error:
            named = f"{error.filename}: {os_error(error)}" if error.filename else error.strerror
            raise OptionsError(named or str(error)) from None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write the file unless it is up to date; from now on every `changed` triggers a write soon."""
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, "metadata")
        number, data = self._snapshot()
        try:
            if data == self._content:
                try_writing(self._folder, data)
            else:
                self._announce()
                self._write(number, data)
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Wait for a write that is under way; later changes are not written."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        for waiter in self._waiters:
            waiter.cancel()

    async def persist(self, topic: str | None = None) -> None:
        """Return when the current state is on disk; OSError if it cannot be written.

        `topic`: the topic changed without a call of `changed`; None = any.
        """
        if self._loop is None:
            raise OSError(errno.ESHUTDOWN, "exiting")
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        if topic is None:
            self._listing.note_all()
        else:
            self._listing.note("pause", topic)
        self._want()
        await waiter

    def changed(self, kind: str, topic: str, channel: str | None) -> None:
        """A topic or a channel was created or removed."""
        if not (is_ephemeral(topic) or (channel is not None and is_ephemeral(channel))):
            self._listing.note(kind, topic)
            self._want()

    def _want(self) -> None:
        self._is_wanted = True
        if self._loop is not None and not self._is_busy:
            self._plan(self._loop)

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start at once if nothing was written for a while, or if somebody waits for it and few have recently."""
        at_s = self._due_s - BURST_S if self._waiters else self._started_s + INTERVAL_S
        if self._timer is not None:
            if self._timer_s <= at_s:
                return
            self._timer.cancel()
        self._timer_s = at_s
        is_due = at_s <= loop.time()
        self._timer = loop.call_soon(self._start) if is_due else loop.call_at(at_s, self._start)

    def _start(self) -> None:
        self._timer = None
        if self._loop is None or self._executor is None or self._is_busy or not self._is_wanted:
            return
        self._is_wanted = False
        self._is_busy = True
        self._started_s = self._loop.time()
        self._due_s = max(self._due_s, self._started_s) + INTERVAL_S
        waiters, self._waiters = self._waiters, []
        self._announce()
        self._taken += 1
        steps = self._listing.write()
        if run_slice(steps, PIECE_UNITS):
            self._task = self._loop.create_task(self._save(self._loop))
        else:
            self._task = self._loop.create_task(self._go_on(self._loop, steps))
        self._task.add_done_callback(partial(self._done, waiters))

    async def _go_on(self, loop: asyncio.AbstractEventLoop, steps: Iterator[None]) -> None:
        is_last = False
        while not is_last:
            await asyncio.sleep(0)
            is_last = run_slice(steps, PIECE_UNITS)
        await self._save(loop)

    async def _save(self, loop: asyncio.AbstractEventLoop) -> None:
        text = self._listing.text()
        # A start takes a name that it finds here for one that the commit log had.
        kept = asyncio.Event()
        self._topics.when_kept(lambda _: kept.set())
        await kept.wait()
        await loop.run_in_executor(self._executor, self._write, self._taken, text)

    def _done(self, waiters: list["asyncio.Future[None]"], result: "asyncio.Future[None]") -> None:
        self._is_busy = False
        if result.cancelled():
            for waiter in waiters:
                waiter.cancel()
            return
        error = result.exception()
        if error is not None:
            self._fail(error)
        else:
            self._recover()
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        if self._loop is not None and self._is_wanted and (error is None or self._waiters):
            self._plan(self._loop)

    def _fail(self, error: BaseException) -> None:
        text = os_error(error) if isinstance(error, OSError) else repr(error)
        now = time.monotonic()
        self.health = f"NOK - failed to persist metadata - {text}"
        if not self._failing_since or now - self._complained >= COMPLAINT_S:
            since_s = int(now - self._failing_since) if self._failing_since else 0
            log.error(
                "failed to persist metadata - %s; %s",
                text,
                f"for {since_s} s" if since_s else "tried again every second",
            )
            self._complained = now
        self._failing_since = self._failing_since or now
        # A restart would forget a topic that is on disk but in no list.
        if self._loop is not None:
            self._is_wanted = True
            self._loop.call_later(RETRY_S, self._start)

    def _recover(self) -> None:
        if self._failing_since:
            self._failing_since = 0.0
            self.health = "OK"
            log.info("NSQ: topic/channel metadata is persisted again")

    def _snapshot(self) -> tuple[int, bytes]:
        """Take the whole snapshot at once: nobody is served yet."""
        self._taken += 1
        self._listing.note_all()
        for _ in self._listing.write():
            pass
        return self._taken, self._listing.text()

    def _announce(self) -> None:
        if not self._failing_since:
            log.info("NSQ: persisting topic/channel metadata to %s", self.path)

    def _write(self, number: int, data: bytes) -> None:
        with self._writing:
            if number <= self._written:
                return
            if self._content is None and os.path.lexists(self.path):
                keep_aside(self._folder)
            write(self._folder, data)
            self._content = data
            self._written = number
