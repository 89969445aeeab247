"""Decides which URLs a body goes to, in what order, and when to retry.

One of several   The next by --mode. If that fails, each of the others at once, chosen in the same way, until one takes
it. All              One after the other, in the order of the flags; the first failure ends it.

A destination that answered with Retry-After gets nothing until then. Others are tried meanwhile; if there are none, the
body waits here, while its messages are touched. A body refused this way waits HOLD_MAX_S at most; then it has failed.
"""

import asyncio
import time
from collections.abc import Sequence

from nsqfast.tools.nsq_to_http.destination import Destination, FailedError
from nsqfast.tools.shared.hostpool import Pool, make_pool
from nsqfast.tools.shared.timings import Timings

HOLD_MAX_S = 30.0


class StoppedError(Exception):
    """The tool ends before the body was sent."""


class UndeliveredError(Exception):
    """Nobody took the body; do not retry before `wait_s` from now."""

    def __init__(self, text: str, wait_s: float) -> None:
        super().__init__(text)
        self.wait_s = wait_s


class Delivery:
    """Delivers to all destinations if `pool` is None. Waiting ends when `stopping` is set."""

    def __init__(
        self,
        destinations: Sequence[Destination],
        pool: Pool | None,
        timings: Timings,
        stopping: asyncio.Event,
    ) -> None:
        self._destinations = destinations
        self._pool = pool
        self._timings = timings
        self._stopping = stopping

    async def deliver(self, body: bytes, count: int) -> None:
        """Return when the body is delivered; UndeliveredError, StoppedError."""
        began_s = time.monotonic()
        if self._pool is None:
            for destination in self._destinations:
                await self._to_this(destination, body, count)
        else:
            await self._to_one(self._pool, body, count, began_s)
        self._timings.add(time.monotonic() - began_s)

    # -- one of them

    async def _to_one(self, pool: Pool, body: bytes, count: int, began_s: float) -> None:
        tried: set[int] = set()  # those that failed without saying when to retry
        failure = ""
        while True:
            number = self._next(pool, tried)
            if number is None:
                await self._wait_for_any(tried, failure, began_s)
                continue
            destination = self._destinations[number]
            sent_s = time.monotonic()
            try:
                await destination.send(body, count)
            except FailedError as error:
                failure = str(error)
                if destination.paused_until_s <= time.monotonic():
                    pool.fail(number)
                    tried.add(number)
            else:
                took_s = time.monotonic() - sent_s
                pool.succeed(number, took_s)
                destination.timings.add(took_s)
                return

    def _next(self, pool: Pool, tried: set[int]) -> int | None:
        """The pool's choice among the destinations that may be asked now; None if there is none."""
        now_s = time.monotonic()
        if len(tried) == len(self._destinations):
            return None
        for _ in self._destinations:
            number = pool.next()
            if number not in tried and self._destinations[number].paused_until_s <= now_s:
                return number
        for number, destination in enumerate(self._destinations):
            if number not in tried and destination.paused_until_s <= now_s:
                return number
        return None

    async def _wait_for_any(self, tried: set[int], failure: str, began_s: float) -> None:
        pauses = [
            destination.paused_until_s
            for number, destination in enumerate(self._destinations)
            if number not in tried
        ]
        await self._wait_until(min(pauses, default=None), failure, began_s)

    # -- all of them

    async def _to_this(self, destination: Destination, body: bytes, count: int) -> None:
        began_s = time.monotonic()
        failure = ""
        while True:
            sent_s = time.monotonic()
            if destination.paused_until_s > sent_s:
                await self._wait_until(destination.paused_until_s, failure, began_s)
                continue
            try:
                await destination.send(body, count)
            except FailedError as error:
                failure = str(error)
                if destination.paused_until_s <= time.monotonic():
                    raise UndeliveredError(failure, 0.0) from None
            else:
                destination.timings.add(time.monotonic() - sent_s)
                return

    async def _wait_until(self, time_s: float | None, failure: str, began_s: float) -> None:
        """Wait for the end of a pause, unless that is too late for a body that failed already."""
        now_s = time.monotonic()
        if time_s is None or (failure and time_s > began_s + HOLD_MAX_S):
            raise UndeliveredError(failure, 0.0 if time_s is None else time_s - now_s)
        try:
            await asyncio.wait_for(self._stopping.wait(), max(0.0, time_s - now_s))
        except TimeoutError:
            return
        raise StoppedError


def choose_pool(mode: str, count: int) -> Pool | None:
    """The pool for --mode; None stands for all."""
    return make_pool(mode, count) if mode in {"round-robin", "hostpool", "epsilon-greedy"} else None
