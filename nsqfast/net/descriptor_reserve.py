"""Decide whether connections are accepted: some descriptors must be left for files.

A broker whose clients took every descriptor could open no queue and write no metadata. So the highest descriptors are
reserved for files: the kernel hands out the lowest free number, and a connection with a number in the reserve shows
that all below it are taken. Then no listener accepts until some are free again, and new clients wait in the kernel's
queue. They cannot be told, because an answer needs a descriptor, too.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
from collections.abc import Callable

from nsqfast.wire.gotext import os_error

log = logging.getLogger(__name__)

RESERVE_COUNT_MAX = 256  # descriptors for files, but at most a quarter of all
FREE_COUNT = 16  # must be free before accepting resumes, so that it does not stop again at once
CHECK_S = 0.1  # between checks for free descriptors; only while accepting is stopped
TABLE_SIZE_MAX = 65_536  # half a megabyte of the kernel's memory


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one, as Go programs do; call it before the first thread starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # The kernel refuses if its own ceiling was meanwhile lowered below the limit.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _grow_descriptor_table()


def _grow_descriptor_table() -> None:
    """Make the kernel grow the process's table of descriptors as far as it may need to.

    Otherwise the table doubles whenever it is full, and in a process with threads the call that needs the next
    descriptor then waits until all processors have seen the new table: 10 ms during which the loop stands still.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    size = TABLE_SIZE_MAX if limit == resource.RLIM_INFINITY else min(limit, TABLE_SIZE_MAX)
    # Without memory for it, the table grows when it has to.
    with contextlib.suppress(OSError):
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.close(fcntl.fcntl(lowest, fcntl.F_DUPFD_CLOEXEC, size - 1))
        finally:
            os.close(lowest)


class DescriptorReserve:
    """One for all listeners of a process; `join` takes the calls that stop and start them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_troubled = False
        self.limit = limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._first_reserved = limit - min(RESERVE_COUNT_MAX, limit // 4)
        if limit == resource.RLIM_INFINITY:
            self._first_reserved = 1 << 31

    def join(self, stop: Callable[[], None], start: Callable[[], None]) -> None:
        """Add two calls; each must do nothing if there is nothing to do."""
        self._listeners.append((stop, start))

    def admits(self, descriptor: int) -> bool:
        """Whether there is room for more connections after one with this number; if not, `stop` was called."""
        if descriptor < self._first_reserved:
            return True
        self.shut(f"{self._first_reserved} of {self.limit} descriptors are taken")
        return False

    def shut(self, reason: str) -> None:
        """Stop all listeners until descriptors are free; logs one line, however often this repeats."""
        for stop, _ in self._listeners:
            stop()
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_S, self._check)
        if not self._is_troubled:
            self._is_troubled = True
            log.error(
                "no more connections accepted - %s; they wait, and clients run into timeouts: raise `ulimit -n`",
                reason,
            )

    def passed(self) -> None:
        """Note that nobody waits at one of the listeners any more."""
        if self._is_troubled and self._timer is None:
            self._is_troubled = False
            log.info("connections are accepted again")

    def close(self) -> None:
        """Make no call after this one."""
        self._listeners.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        if not self._has_free():
            self._timer = self._loop.call_later(CHECK_S, self._check)
            return
        self._timer = None
        for _, start in self._listeners:
            start()

    def _has_free(self) -> bool:
        taken: list[int] = []
        try:
            taken.extend(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(FREE_COUNT))
        except OSError as error:
            log.debug("still short of descriptors - %s", os_error(error))
            return False
        else:
            return max(taken) < self._first_reserved
        finally:
            for descriptor in taken:
                os.close(descriptor)
