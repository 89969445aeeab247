"""The resources of a spool's only query, in the process that plans it: its lock, and its receiver."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from nsqfast.program.logs import logger
from nsqfast.spark.receiver.child import ReceiverChild, ReceiverError, ReceiverSettings
from nsqfast.spark.source.listing import Listing
from nsqfast.spark.source.offsets import LossPolicy, Offset
from nsqfast.spark.source.options import SourceOptions
from nsqfast.spark.spool.identity import (
    QUERY,
    RECEIVER,
    Identity,
    Lock,
    SpoolError,
    is_held,
    open_spool,
    read_identity,
)
from nsqfast.spark.spool.release import release_segments, remove_done
from nsqfast.spark.spool.segments import list_segments
from nsqfast.wire.gotext import os_error

# Spark does not wait for the process of a stopped query, which still has to stop its receiver.
LOCK_TIMEOUT_S = 5.0
LOCK_POLL_S = 0.1
REMOVE_INTERVAL_S = 60.0
RECEIVER_TIMEOUT_S = 5.0
# Of a query's own receiver.
RESTARTS_MAX = 4
PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before each restart
SOUND_S = 60.0  # a receiver that lived so long is healthy
DRAIN_IDLE_S = 1.0  # nsqd sends waiting messages at once
DRAIN_TIMEOUT_S = 3600.0

log = logger("nsqfast.spark.source")


class OwnReceiver:
    """A query's own receiver: a child process that is restarted when it dies.

    Runs from `start` to `stop`; `check` keeps it alive.
    """

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


def take_lock(spool: Path) -> Lock:
    """SpoolError if another query has it."""
    deadline_s = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            return Lock.take(spool / QUERY, f"spool {spool} is read by another query")
        except SpoolError:
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(LOCK_POLL_S)


class SpoolQuery:
    """Lasts from `open` to `close`."""

    def __init__(
        self, options: SourceOptions, loss: LossPolicy, identity: Identity, lock: Lock
    ) -> None:
        self.options = options
        self.loss = loss
        self.identity = identity
        self.listing = Listing(options.spool)
        self.receiver = _make_receiver(options)
        self._lock = lock
        self._removed_at_s = self._seen_at_s = time.monotonic()  # the latter: a receiver

    @classmethod
    def open(
        cls, options: SourceOptions, loss: LossPolicy, checkpoint: Offset | None = None
    ) -> Self:
        """Create the spool if it does not exist. SpoolError: it is another's, in use, or not that of the checkpoint."""
        if checkpoint is not None:
            checkpoint.check_subscription(options.subscription, options.channel)
            check_epoch(options.spool, read_identity(options.spool), checkpoint, loss)
        identity = open_spool(options.spool, options.subscription, options.channel)
        return cls(options, loss, identity, take_lock(options.spool))

    def is_intact(self) -> bool:
        """Whether the spool is the one that was opened. SpoolError: it is not, and that is not accepted."""
        if read_identity(self.options.spool) == self.identity:
            return True
        self.loss.report(
            f"spool {self.options.spool} was deleted or replaced while this query read it",
            "the query goes on with what is there",
        )
        return False

    def drain(self) -> None:
        """Take what waits in nsqd, with its own receiver; say so if nothing ever came."""
        assert self.receiver is not None
        self.receiver.drain()
        self.listing.refresh()
        if not any(map(self.listing.last, self.listing.receivers())):
            log.warning(
                "nothing waits in channel %s of %s; a new channel gets only messages from now on",
                self.options.channel,
                self.options.subscription,
            )

    def look_for_receiver(self) -> None:
        """Warn if no external one has been running for some time; again if that is so after one was seen."""
        spool = self.options.spool
        self.listing.refresh()
        if any(is_held(spool / name / RECEIVER) for name in self.listing.receivers()):
            self._seen_at_s = time.monotonic()
        elif time.monotonic() - self._seen_at_s >= RECEIVER_TIMEOUT_S:
            self._seen_at_s = math.inf
            log.warning(
                "no receiver writes to %s: start nsqfast-nsq-spool --spool=%s", spool, spool
            )

    def release(self, end: Offset) -> None:
        """Spark has everything up to there. Once a minute, also remove old released segments."""
        spool = self.options.spool
        try:
            for receiver, number in end.numbers.items():
                if (spool / receiver).is_dir():
                    release_segments(spool / receiver, number)
            if time.monotonic() - self._removed_at_s >= REMOVE_INTERVAL_S:
                self.remove_done()
        except OSError as error:
            raise SpoolError(f"spool {spool}: {os_error(error)}") from None

    def remove_done(self) -> None:
        """Remove released segments whose retention is over, or if the spool exceeds its size."""
        self._removed_at_s = time.monotonic()
        self.listing.refresh()
        folders = [self.options.spool / receiver for receiver in self.listing.receivers()]
        live = sum(segment.size for folder in folders for segment in list_segments(folder))
        size_max = max(0, self.options.max_spool_bytes - live) // max(1, len(folders))
        for folder in folders:
            remove_done(folder, self.options.retention_s, size_max)

    def close(self) -> None:
        """Stop the receiver in order; then another query may begin. A second call does nothing."""
        try:
            if self.receiver is not None:
                self.receiver.stop()
        finally:
            self._lock.release()


def _make_receiver(options: SourceOptions) -> OwnReceiver | None:
    return OwnReceiver(options.receiver_settings()) if options.is_embedded else None


def check_epoch(
    spool: Path, identity: Identity | None, checkpoint: Offset, loss: LossPolicy
) -> None:
    """Tell `loss` if the spool is not the one that the checkpoint was written for."""
    own = checkpoint.identity.epoch
    if identity is not None and identity.epoch == own:
        return
    found = "there is none" if identity is None else f"that one has epoch {identity.epoch}"
    loss.report(
        f"spool {spool} is not the one of the checkpoint (epoch {own}; {found}): it was deleted, or spoolDir is another"
        " folder; use a new checkpoint",
        "the query begins with what is there",
    )
