"""Detects that the process stood still: it was stopped, or its machine slept.

Meanwhile nsqd has requeued what was in flight, and another receiver may have put it into the spool.
"""

import asyncio
import time
from typing import NoReturn

# Unlike the monotonic clock it continues while the machine sleeps.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
INTERVAL_S = 0.5


def now_s() -> float:
    """Seconds since an arbitrary moment."""
    return time.clock_gettime(_CLOCK)


class Pulse:
    """`gap_s_max`: shorter pauses are ignored."""

    def __init__(self, gap_s_max: float) -> None:
        self._gap_s_max = max(gap_s_max, 4 * INTERVAL_S)
        self._beat_s = now_s()
        self._stood_until_s = 0.0

    async def beat_on(self) -> NoReturn:
        """Beat for ever."""
        while True:
            self.beat()
            await asyncio.sleep(INTERVAL_S)

    def beat(self) -> None:
        """The process is running now."""
        at_s = now_s()
        if at_s - self._beat_s > self._gap_s_max:
            self._stood_until_s = at_s
        self._beat_s = at_s

    def is_stale(self, since_s: float) -> bool:
        """Whether the process stood still since then; any thread may ask."""
        return since_s < self._stood_until_s or now_s() - self._beat_s > self._gap_s_max
