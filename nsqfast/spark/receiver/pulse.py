"""Finding out that the process stood still: it was stopped, or its machine slept.

Meanwhile nsqd has given what was in flight to others, who may have it in the spool by now.
"""

import asyncio
import time
from typing import NoReturn

# Unlike the monotonic clock it goes on while the machine sleeps.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
INTERVAL_S = 0.5


def now_s() -> float:
    """Seconds since some moment in the past."""
    return time.clock_gettime(_CLOCK)


class Pulse:
    """`gap_s_max`: so long a pause is none to speak of."""

    def __init__(self, gap_s_max: float) -> None:
        self._gap_s_max = max(gap_s_max, 4 * INTERVAL_S)
        self._beat_s = now_s()
        self._stood_until_s = 0.0

    async def beat_on(self) -> NoReturn:
        """For ever."""
        while True:
            self.beat()
            await asyncio.sleep(INTERVAL_S)

    def beat(self) -> None:
        """The process does not stand still now."""
        at_s = now_s()
        if at_s - self._beat_s > self._gap_s_max:
            self._stood_until_s = at_s
        self._beat_s = at_s

    def is_stale(self, since_s: float) -> bool:
        """Whether the process stood still at some time since then; any thread may ask."""
        return since_s < self._stood_until_s or now_s() - self._beat_s > self._gap_s_max
