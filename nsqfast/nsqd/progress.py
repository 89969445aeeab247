"""Log lines during a long start or stop."""

import logging
import time
from collections.abc import Callable

INTERVAL_S = 5.0  # between two lines
DEADLINE_S = 60.0  # for a stop: supervisors that kill mostly do so after 90 s
log = logging.getLogger("nsqd")


class StartProgress:
    """Reports how many queues are open."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_s = clock() + INTERVAL_S

    def __call__(self, count: int, opened: int) -> None:
        """This many are done."""
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + INTERVAL_S
            log.info("NSQ: starting, %d of %d queues are open", opened, count)


class StopProgress:
    """Reports how many queues are on disk. The deadline does not end the stop: that would lose the rest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_s = clock()
        self._next_s = self._begun_s + INTERVAL_S
        self._deadline_s = self._begun_s + DEADLINE_S

    def __call__(self, count: int, synced: int, closed: int) -> None:
        """This many are done."""
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + INTERVAL_S
            log.info(
                "NSQ: stopping, %d of %d queues are synced, %d are closed", synced, count, closed
            )
        if now_s >= self._deadline_s:
            self._deadline_s = now_s + DEADLINE_S
            log.warning(
                "NSQ: stopping takes longer than %d s, %d of %d queues are not synced yet; it goes on, "
                "and whoever kills it now may lose what these hold",
                now_s - self._begun_s,
                count - synced,
                count,
            )
