"""Lines during a long start or stop, for the log and for systemd, which waits longer for whoever reports."""

import logging
import time
from collections.abc import Callable

from nsqfast.program.systemd import notify_progress

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
            _report(f"starting, {opened} of {count} queues are open")


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
            _report(f"stopping, {synced} of {count} queues are synced, {closed} are closed")
        if now_s >= self._deadline_s:
            self._deadline_s = now_s + DEADLINE_S
            log.warning(
                "NSQ: stopping takes longer than %d s, %d of %d queues are not synced yet; it goes on, "
                "and whoever kills it now may lose what these hold",
                now_s - self._begun_s,
                count - synced,
                count,
            )


def _report(text: str) -> None:
    log.info("NSQ: %s", text)
    notify_progress(text)
