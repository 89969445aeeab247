"""Sealing: writes what the topics take from nsqd as segments, and finishes it once it is on disk.

A thread seals a group of messages while the next one gathers. A group is due when it is large, when its time is over,
or when a connection has little more to give. If the disk fails, the group is retried and its messages stay in flight;
after a while they are requeued and forgotten.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from nsqfast.spark.receiver.group import Group, TakenBatch
from nsqfast.spark.receiver.known import KnownMessages
from nsqfast.spark.spool.segments import Segment
from nsqfast.spark.spool.writer import NotSyncedError, SegmentWriter
from nsqfast.tools.shared.program import log
from nsqfast.wire.gotext import os_error

RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When a group is due, and how long one that cannot be sealed is retried."""

    rows_max: int
    size_max: int
    interval_s: float
    hold_s: float


@dataclass(slots=True)
class Figures:
    """Counts since the start; `size` and `stored_size` are bytes of bodies and of segments."""

    messages: int = 0
    size: int = 0
    segments: int = 0
    stored_size: int = 0
    seal_s: float = 0.0
    dropped: int = 0  # received before
    failures: int = 0  # of attempts to seal
    requeued: int = 0  # messages that could not be sealed


class StaleError(Exception):
    """The process stood still for so long that nsqd has requeued the messages."""


class Sealer:
    """`on_sealed` is called with each segment, `on_failure` with the disk's error or, once it works again, None."""

    def __init__(
        self,
        writer: SegmentWriter,
        known: KnownMessages,
        limits: Limits,
        on_sealed: Callable[[Segment], object],
        on_failure: Callable[[str | None], object],
        is_stale: Callable[[float], bool],
    ) -> None:
        self.figures = Figures()
        self._writer = writer
        self._known = known
        self._limits = limits
        self._on_sealed = on_sealed
        self._on_failure = on_failure
        self._is_stale = is_stale
        self._thread = ThreadPoolExecutor(1, "nsq_spool: seal")
        self._open = Group()
        self._sealing: Group | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = asyncio.Event()
        self._is_over = asyncio.Event()

    # -- state

    @property
    def waiting_count(self) -> int:
        """Unfinished messages."""
        sealing = self._sealing.row_count if self._sealing else 0
        return self._open.row_count + sealing

    def oldest_ns(self) -> int | None:
        """When the oldest unfinished message was published; None: there is none."""
        groups = [self._open, *([self._sealing] if self._sealing else [])]
        times_ns = [group.oldest_ns() for group in groups]
        return min((time_ns for time_ns in times_ns if time_ns is not None), default=None)

    def oldest_s(self) -> float:
        """Its age; 0 if there is none."""
        oldest_ns = self.oldest_ns()
        return 0.0 if oldest_ns is None else max(0.0, time.time() - oldest_ns / 1e9)

    # -- on the loop

    def add(self, taken: TakenBatch, *, is_last: bool) -> None:
        """Seal and finish it in time, or requeue it; `is_last`: no more comes before it is finished."""
        if not self._open.taken:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limits.interval_s, self._due.set)
        self._open.add(taken)
        limits = self._limits
        if is_last or self._open.row_count >= limits.rows_max or self._open.size >= limits.size_max:
            self._due.set()

    def end(self) -> None:
        """Let `run` return once everything was sealed, or could not be."""
        self._is_over.set()
        self._due.set()

    async def run(self) -> None:
        """Run until `end`; an exception is a bug."""
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                group = self._take_group()
                if group.taken:
                    self._sealing = group
                    await self._seal(group)
                    self._sealing = None
                elif self._is_over.is_set():
                    return
                if self._is_over.is_set():
                    self._due.set()
        finally:
            self._thread.shutdown(wait=False)

    def _take_group(self) -> Group:
        group, self._open = self._open, Group()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return group

    async def _seal(self, group: Group) -> None:
        """Finish it once it is on disk, or requeue it."""
        loop = asyncio.get_running_loop()
        job = _Job(self._writer, self._known, group, self._is_stale)
        began_s = loop.time()
        while True:
            try:
                await loop.run_in_executor(self._thread, job.seal)
                break
            except StaleError:
                self._give_back(group, "the receiver stood still for long")
                return
            except OSError as error:
                self._note_failure(error)
                if loop.time() - began_s >= self._limits.hold_s or self._is_over.is_set():
                    self._give_back(group, "they could not be written")
                    return
            await self._pause()
        if job.has_failed:
            self._on_failure(None)
        self._note_sealed(job, loop.time() - began_s)
        group.finish()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), RETRY_S)

    def _note_failure(self, error: OSError) -> None:
        self.figures.failures += 1
        self._on_failure(os_error(error))

    def _give_back(self, group: Group, why: str) -> None:
        """Requeue it and all behind it: messages dropped there as duplicates may be in this one."""
        self._known.forget()
        groups = [group, self._take_group()]
        count = sum(one.row_count for one in groups)
        self.figures.requeued += count
        log.warning("%d messages are requeued: %s", count, why)
        for one in groups:
            one.requeue(why)

    def _note_sealed(self, job: "_Job", spent_s: float) -> None:
        figures, sealed = self.figures, job.segment
        kept = 0 if sealed is None else sealed.row_count
        figures.dropped += job.group.row_count - kept
        figures.messages += kept
        figures.size += job.group.size
        figures.seal_s += spent_s
        if sealed is not None:
            figures.segments += 1
            figures.stored_size += sealed.size
            self._on_sealed(sealed)


class _Job:
    """A group in the thread; `seal` may be called again after an OSError."""

    def __init__(
        self,
        writer: SegmentWriter,
        known: KnownMessages,
        group: Group,
        is_stale: Callable[[float], bool],
    ) -> None:
        self.group = group
        self.segment: Segment | None = None  # None: all of it was received before
        self.has_failed = False
        self._writer = writer
        self._known = known
        self._is_stale = is_stale
        self._rows: list[pa.RecordBatch] | None = None

    def seal(self) -> None:
        """The group is on disk when this returns."""
        try:
            if self.segment is None:
                self._seal_rows()
            else:
                self._writer.sync()
        except NotSyncedError as error:
            self._note_segment(error.segment)
            self.has_failed = True
            raise
        except OSError:
            self.has_failed = True
            raise

    def _seal_rows(self) -> None:
        if self._rows is None:
            self._rows = self._make_rows()
        if self._is_stale(self.group.begun_s):
            raise StaleError
        if self._rows:
            self._note_segment(self._writer.seal(self._rows))
        else:
            # What they came in before may be a segment of which that was not certain yet.
            self._writer.sync()

    def _note_segment(self, segment: Segment) -> None:
        self.segment = segment
        self._known.note_sealed(segment, is_remembered=self.group.is_unsure)

    def _make_rows(self) -> list[pa.RecordBatch]:
        """Runs once: looked-up messages are remembered, and would be dropped the second time."""
        if not self.group.is_unsure:
            return self.group.rows(None)
        self._known.refresh()
        return self.group.rows(self._known)
