"""Messages on their way into a segment: received from nsqd, not finished, and not on disk."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import pyarrow as pa

from nsqfast.client.batch import ArrayBatch
from nsqfast.client.deaths import Deaths
from nsqfast.spark.receiver.columns import ColumnMaker
from nsqfast.spark.receiver.known import KnownMessages

# Detects that the process stood still: it was stopped, or its machine slept. Meanwhile nsqd has requeued what was in
# flight, and another receiver may have put it into the spool.

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


FEW_ROWS = 500  # batches with fewer rows on average are concatenated, which copies them


@dataclass(frozen=True, slots=True)
class TakenBatch:
    """A batch of a topic; messages published before `unsure_before_ns` may be repeated, although attempts is 1."""

    batch: ArrayBatch
    columns: ColumnMaker
    unsure_before_ns: int
    deaths: Deaths | None = None  # None: nobody wants them

    @property
    def is_unsure(self) -> bool:
        """Whether it has a message that may have come before."""
        batch = self.batch
        return bool(batch.attempts.max() > 1 or batch.timestamps.min() < self.unsure_before_ns)


@dataclass(slots=True)
class Group:
    """The content of one segment; `size` is the bytes of bodies."""

    taken: list[TakenBatch] = field(default_factory=list)
    row_count: int = 0
    size: int = 0
    begun_s: float = field(default_factory=now_s)  # by the clock of the pulse

    def add(self, taken: TakenBatch) -> None:
        self.taken.append(taken)
        self.row_count += len(taken.batch)
        self.size += len(taken.batch.bodies)

    @property
    def is_unsure(self) -> bool:
        """Whether any of its messages may have come before."""
        return any(taken.is_unsure for taken in self.taken)

    def rows(self, known: KnownMessages | None) -> list[pa.RecordBatch]:
        """Return batches of the spool's schema; with `known`, without what came before."""
        batches = [rows for rows in self._rows(known) if rows.num_rows]
        if len(batches) > 1 and sum(rows.num_rows for rows in batches) < FEW_ROWS * len(batches):
            return [pa.concat_batches(batches)]
        return batches

    def _rows(self, known: KnownMessages | None) -> Iterator[pa.RecordBatch]:
        for taken in self.taken:
            for rows in taken.columns.make(taken.batch, taken.deaths):
                yield rows if known is None else known.drop_known(rows, taken.unsure_before_ns)

    def oldest_ns(self) -> int | None:
        """When the oldest of its messages was published; None: it has none."""
        return min((int(taken.batch.timestamps.min()) for taken in self.taken), default=None)

    def finish(self) -> None:
        """Send FIN for all."""
        for taken in self.taken:
            taken.batch.finish()

    def requeue(self, reason: str) -> None:
        """Send REQ for all."""
        for taken in self.taken:
            taken.batch.requeue(reason=reason)
