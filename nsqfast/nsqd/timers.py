"""One loop timer for all deadlines of the broker: set to the earliest one, and not at all while there is none.

Its delay shows how long the loop was busy with something else.
"""

import asyncio
import time
from collections.abc import Callable

from nsqfast._ext.core.histogram import Histogram

MS = 1_000_000
LATE_NS = 100 * MS  # beyond a busy turn: the loop, or the whole process, stood still
TURN_S = 0.001  # until the loop has polled its sockets once more
PROBE_S = 1.0
WATCH_S = 90.0  # longer than anybody waits between two looks at the figures


class DeadlineTimer:
    """Calls `run(now_ns)`, which does everything that is due and returns the next deadline, or 0 for none."""

    def __init__(self, loop: asyncio.AbstractEventLoop, run: Callable[[int], int]) -> None:
        self.lag = Histogram()
        self._loop = loop
        self._run = run
        self._due_ns = 0
        self._armed_ns = 0
        self._handle: asyncio.TimerHandle | None = None
        self._closed = False

    def announce(self, deadline_ns: int) -> None:
        """Add a deadline (monotonic clock); only one that is earlier than the current one changes anything."""
        if self._closed or deadline_ns <= 0 or 0 < self._armed_ns <= deadline_ns:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._armed_ns = deadline_ns
        # The loop counts whole milliseconds. Round up, so that the timer does not fire just before the deadline and
        # spin until it is reached; wait at least one, so that work that stays due cannot starve the sockets.
        now_ns = time.monotonic_ns()
        delay_ms = max(1, -((now_ns - deadline_ns) // MS))
        self._due_ns = now_ns + delay_ms * MS
        self._handle = self._loop.call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        late_ns = time.monotonic_ns() - self._due_ns
        self.lag.note(late_ns)
        if late_ns > LATE_NS:
            # A FIN waiting in its socket came in time, so read it before judging its message's timeout.
            self._handle = self._loop.call_later(TURN_S, self._run_due)
        else:
            self._run_due()

    def _run_due(self) -> None:
        self._handle = None
        self._armed_ns = 0
        now_ns = time.monotonic_ns()
        next_ns = now_ns + 1000 * MS  # if `run` fails, later deadlines still get their turn
        try:
            next_ns = self._run(now_ns)
        finally:
            self.announce(next_ns)

    def close(self) -> None:
        """Make no call after this one."""
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class LagProbe:
    """A timer once a second while somebody looks, for a broker whose own timers are seldom due."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lag: Histogram) -> None:
        self._loop = loop
        self._lag = lag
        self._due_ns = 0
        self._until = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Somebody looks now, and may do so again."""
        self._until = self._loop.time() + WATCH_S
        if self._handle is None:
            self._arm()

    def _arm(self) -> None:
        self._due_ns = time.monotonic_ns() + int(PROBE_S * 1000) * MS
        self._handle = self._loop.call_later(PROBE_S, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._lag.note(time.monotonic_ns() - self._due_ns)
        if self._loop.time() < self._until:
            self._arm()

    def close(self) -> None:
        """Stop the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
