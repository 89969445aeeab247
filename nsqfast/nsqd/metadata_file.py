"""Keeps nsqd.dat true while the broker runs. Its fsyncs are waited for on a thread, never by the loop."""

import asyncio
import errno
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.gotext import os_error
from nsqfast.names import is_ephemeral
from nsqfast.nsqd.metadata import (
    FILE_NAME,
    encode,
    keep_aside,
    load,
    refuse_folder,
    remove_leftovers,
    try_writing,
    write,
)

if TYPE_CHECKING:
    from nsqfast._ext.registry import Registry

RETRY_S = 1.0
COMPLAINT_S = 60.0  # between two lines about a write that goes on failing
log = logging.getLogger("nsqd")


class MetadataFile:
    """Keeps the file up to date: behind the loop's back after a change, and again if that failed.

    Each snapshot has a number, and an older one never replaces a newer one, whoever comes first to the disk. While one
    is being written, further changes wait and are written together.
    """

    def __init__(self, registry: "Registry", folder: str) -> None:
        self.path = os.path.join(folder, FILE_NAME)  # noqa: PTH118
        self.health = "OK"  # or NOK and why the last write failed
        self._registry = registry
        self._folder = folder
        self._content: bytes | None = None  # None = not to be used
        self._taken = 0
        self._written = 0
        self._writing = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_wanted = False
        self._is_busy = False
        self._waiters: list[asyncio.Future[None]] = []  # of the next snapshot
        self._failing_since = 0.0  # 0 = it is not
        self._complained = 0.0

    def load(self) -> None:
        """Has the registry make what there is; OptionsError if the operator has to do something first."""
        try:
            remove_leftovers(self._folder)
            refuse_folder(self._folder)
            self._content = load(self._registry, self._folder)
        except OSError as error:
            named = f"{error.filename}: {os_error(error)}" if error.filename else error.strerror
            raise OptionsError(named or str(error)) from None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Writes it unless it says so already; from now on every `changed` has it written soon."""
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, "metadata")
        data = encode(self._registry)
        try:
            if data == self._content:
                try_writing(self._folder, data)
            else:
                self._write(*self._snapshot())
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Waits for a write on its way; changes after this are not written."""
        self._loop = None
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        for waiter in self._waiters:
            waiter.cancel()

    async def persist(self) -> None:
        """Returns when what is true now is on disk; OSError if it does not get there."""
        if self._loop is None:
            raise OSError(errno.ESHUTDOWN, "exiting")
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        self._want()
        await waiter

    def changed(self, _kind: str, topic: str, channel: str | None) -> None:
        """A topic or a channel came or went."""
        if not (is_ephemeral(topic) or (channel is not None and is_ephemeral(channel))):
            self._want()

    def _want(self) -> None:
        self._is_wanted = True
        if self._loop is not None and not self._is_busy:
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        if self._loop is None or self._executor is None or self._is_busy or not self._is_wanted:
            return
        self._is_wanted = False
        self._is_busy = True
        waiters, self._waiters = self._waiters, []
        self._loop.run_in_executor(
            self._executor, self._write, *self._snapshot()
        ).add_done_callback(partial(self._done, waiters))

    def _done(self, waiters: list["asyncio.Future[None]"], result: "asyncio.Future[None]") -> None:
        self._is_busy = False
        error = None if result.cancelled() else result.exception()
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
        if self._is_wanted and (error is None or self._waiters):
            self._start()

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
        # A topic that is on disk and in no list would be forgotten by a restart.
        if self._loop is not None:
            self._is_wanted = True
            self._loop.call_later(RETRY_S, self._start)

    def _recover(self) -> None:
        if self._failing_since:
            self._failing_since = 0.0
            self.health = "OK"
            log.info("NSQ: topic/channel metadata is persisted again")

    def _snapshot(self) -> tuple[int, bytes]:
        if not self._failing_since:
            log.info("NSQ: persisting topic/channel metadata to %s", self.path)
        self._taken += 1
        return self._taken, encode(self._registry)

    def _write(self, number: int, data: bytes) -> None:
        with self._writing:
            if number <= self._written:
                return
            if self._content is None and os.path.lexists(self.path):
                keep_aside(self._folder)
            write(self._folder, data)
            self._content = data
            self._written = number
