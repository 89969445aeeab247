"""A query's own receiver: a child process that is restarted when it dies."""

import time
from collections.abc import Callable

from nsqfast.program.logs import logger
from nsqfast.spark.receiver.child import ReceiverChild, ReceiverError, ReceiverSettings
from nsqfast.spark.spool.identity import SpoolError

RESTARTS_MAX = 4
PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before each restart
SOUND_S = 60.0  # a receiver that lived so long is healthy
DRAIN_IDLE_S = 1.0  # nsqd sends waiting messages at once
DRAIN_TIMEOUT_S = 3600.0

log = logger("nsqfast.spark.source")


class OwnReceiver:
    """Runs from `start` to `stop`; `check` keeps it alive."""

    def __init__(
        self, settings: ReceiverSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._child = ReceiverChild(settings)
        self._clock = clock
        self._is_started = False
        self._started_at_s = 0.0
        self._died_at_s: float | None = None
        self._restarts = 0

    def start(self) -> None:
        """Receive messages from now on; a second call does nothing."""
        if not self._is_started:
            self._is_started = True
            self._begin()

    def _begin(self) -> None:
        self._died_at_s = None
        self._started_at_s = self._clock()
        self._child.start()

    def check(self) -> None:
        """Restart a receiver that died, after a pause; SpoolError after too many restarts."""
        if not self._is_started or self._child.is_alive:
            return
        now_s = self._clock()
        if self._died_at_s is None:
            self._note_death(now_s)
        assert self._died_at_s is not None
        if now_s - self._died_at_s >= PAUSES_S[self._restarts]:
            self._restarts += 1
            self._begin()

    def _note_death(self, now_s: float) -> None:
        if now_s - self._started_at_s >= SOUND_S:
            self._restarts = 0
        try:
            self._child.check()
        except ReceiverError as error:
            if self._restarts == RESTARTS_MAX:
                raise SpoolError(
                    f"{error}; it was started {RESTARTS_MAX + 1} times. It said:{_indent(self._child.last_lines)}"
                ) from None
            log.warning("%s; it is started again", error)
        self._died_at_s = now_s

    def drain(self) -> None:
        """Return when all that waits now is in the spool, or the spool is full; SpoolError if that fails."""
        for pause_s in (*PAUSES_S, None):
            try:
                self._child.drain(DRAIN_IDLE_S, DRAIN_TIMEOUT_S)
            except ReceiverError as error:
                was_killed = (self._child.returncode or 0) < 0
                if pause_s is None or not was_killed:
                    said = _indent(self._child.last_lines)
                    raise SpoolError(f"{error}. It said:{said}") from None
                log.warning("%s; it is started again", error)
                time.sleep(pause_s)
            else:
                return

    def stop(self) -> None:
        """Let it seal and finish what it has; a second call does nothing."""
        self._is_started = False
        self._child.stop()


def _indent(lines: list[str]) -> str:
    return "".join(f"\n    {line}" for line in lines)
