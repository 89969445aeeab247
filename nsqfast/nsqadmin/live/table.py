"""The history of all entities of one kind: their slots, the values since the last step, and the rings."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsqfast.nsqadmin.live.rings import BLOCK, Doubles, Floats, Ring, resample
from nsqfast.nsqadmin.live.series import Key

KEPT_S = 600.0  # how long the slot of an entity that is gone stays reserved
CLOCK_BACK_S_MAX = 60.0  # beyond it the past is of no use
FILL_S = 30.0  # ticks closer than this make no gap


@dataclass(slots=True)
class StoredTable:
    """The content of a file for one table."""

    slots: dict[Key, int]
    fine: Ring
    coarse: Ring
    totals: Doubles
    raw: Doubles


class Table:
    """Pass it the values of each tick with `take`; a step is written when the first tick of the next one arrives."""

    def __init__(self, columns: tuple[str, ...], *, has_counts: bool) -> None:
        self.columns, self.has_counts = columns, has_counts
        self.slots: dict[Key, int] = {}
        self.fine = Ring(1, 1, len(columns), has_counts=has_counts)
        self.coarse = Ring(1, 1, len(columns), has_counts=has_counts)
        self.totals: Doubles = np.zeros(0)  # running; nan for a free slot
        self.raw: Doubles = np.zeros(0)  # as last reported by the nodes
        self._seen: Doubles = np.zeros(0)  # unix time
        self._sums: Doubles = np.zeros((0, len(columns)))
        self._numbers: NDArray[np.int64] = np.zeros((0, len(columns)), np.int64)
        self._free: list[int] = []
        self._step = -1  # the step of the sums
        self._at = 0.0  # of the last tick
        self._keys: list[Key] = []  # of the last tick
        self._index: NDArray[np.int64] = np.zeros(0, np.int64)  # their slots

    @property
    def capacity(self) -> int:
        """Slots."""
        return len(self._seen)

    def depths(self, slots: list[int], count: int) -> Floats:
        """[steps, slots] of the last `count` known fine steps, oldest first: messages in memory and on disk."""
        memory, rows = self.columns.index("memory_depth"), self.fine.rows(count)
        found = np.empty((len(rows), len(slots)), np.float32)
        for place, slot in enumerate(slots):
            block, offset = divmod(slot, BLOCK)
            values = self.fine.blocks[block]
            np.add(values[rows, offset, memory], values[rows, offset, memory + 1], found[:, place])
        return found

    @staticmethod
    def bytes_of(columns: int, steps: int, *, has_counts: bool) -> int:
        """Bytes per entity."""
        return steps * (4 * columns + 8 * has_counts)

    def set_steps(self, fine_s: int, fine_points: int, coarse_s: int, coarse_points: int) -> None:
        """Change the steps; known values are kept as means."""
        width = len(self.columns)
        fine = Ring(fine_s, fine_points, width, has_counts=self.has_counts)
        coarse = Ring(coarse_s, coarse_points, width, has_counts=self.has_counts)
        resample(self.fine, fine)
        resample(self.coarse, coarse)
        self.fine, self.coarse = fine, coarse
        self._step = -1
        self._sums[:] = 0
        self._numbers[:] = 0

    def adopt(self, stored: StoredTable, now: float) -> None:
        """Take over a file's content; the table is empty. Call `set_steps` next."""
        self.fine, self.coarse, self.slots = stored.fine, stored.coarse, stored.slots
        self.totals, self.raw = stored.totals, stored.raw
        capacity, width = len(stored.fine.blocks) * BLOCK, len(self.columns)
        self._seen = np.full(capacity, now)
        self._sums, self._numbers = (
            np.zeros((capacity, width)),
            np.zeros((capacity, width), np.int64),
        )
        taken = set(self.slots.values())
        self._free = [slot for slot in range(capacity - 1, -1, -1) if slot not in taken]

    def grow(self, blocks: int) -> None:
        """Add this many times BLOCK slots."""
        first, size = self.capacity, blocks * BLOCK
        self.fine.add_blocks(blocks)
        self.coarse.add_blocks(blocks)
        unknown = np.full(size, np.nan)
        self.totals = np.concatenate([self.totals, unknown])
        self.raw = np.concatenate([self.raw, unknown])
        self._seen = np.concatenate([self._seen, np.zeros(size)])
        width = len(self.columns)
        self._sums = np.concatenate([self._sums, np.zeros((size, width))])
        self._numbers = np.concatenate([self._numbers, np.zeros((size, width), np.int64)])
        self._free += range(first + size - 1, first - 1, -1)

    def missing(self, keys: list[Key], now: float) -> int:
        """Number of slots missing for these keys; frees those of entities long gone if necessary."""
        new = sum(key not in self.slots for key in keys) if keys != self._keys else 0
        if new > len(self._free):
            for key, slot in list(self.slots.items()):
                if now - self._seen[slot] > KEPT_S:
                    self._release(key)
        return max(new - len(self._free), 0)

    def _release(self, key: Key) -> None:
        slot = self.slots.pop(key)
        self.fine.forget(slot)
        self.coarse.forget(slot)
        self.totals[slot] = self.raw[slot] = np.nan
        self._sums[slot] = 0
        self._numbers[slot] = 0
        self._free.append(slot)

    def take(self, keys: list[Key], values: Doubles, counts: Doubles | None, now: float) -> None:
        """The values of a tick, [keys, columns], nan for unknown; `counts` as the nodes report them, [keys].

        A key without a slot has no history.
        """
        if now < self._at - CLOCK_BACK_S_MAX:
            for ring in (self.fine, self.coarse):
                ring.first = ring.last = -1
            self._step = -1
        if keys != self._keys:
            self._keys, self._index = keys, self._find(keys, now)
        index, kept = self._index, self._index >= 0
        if not kept.all():
            index, values = index[kept], values[kept]
            counts = counts[kept] if counts is not None else None
        before = self.totals.copy() if self.has_counts else None
        if counts is not None:
            self._count(index, values[:, 0], counts, now)
        self._finish_steps(index, values, before, now)
        self._seen[index] = now
        known = ~np.isnan(values)
        self._sums[index] += np.where(known, values, 0)
        self._numbers[index] += known
        self._at = now

    @property
    def index(self) -> NDArray[np.int64]:
        """Slots of the keys of the last tick; -1 for none."""
        return self._index

    def _find(self, keys: list[Key], now: float) -> NDArray[np.int64]:
        found = np.full(len(keys), -1, np.int64)
        for position, key in enumerate(keys):
            slot = self.slots.get(key, -1)
            if slot < 0 and self._free:
                slot = self.slots[key] = self._free.pop()
                self._seen[slot] = now
            found[position] = slot
        return found

    def _count(self, index: NDArray[np.int64], in_s: Doubles, counts: Doubles, now: float) -> None:
        """Running totals grow by the counts if they fit the rate, else by the rate.

        The counts jump when a node comes, goes or restarts, and then nothing was published.
        """
        raw, totals = self.raw[index], self.totals[index]
        grown = counts - raw
        expected = np.where(np.isnan(in_s), 0.0, in_s) * (now - self._at)
        fits = (grown >= 0) & (grown <= 4 * expected + 10)
        is_new = np.isnan(totals)
        totals = np.where(is_new, counts, totals + np.where(fits, grown, expected))
        self.totals[index], self.raw[index] = totals, counts

    def _finish_steps(
        self, index: NDArray[np.int64], values: Doubles, before: Doubles | None, now: float
    ) -> None:
        step = int(now // self.fine.step_s)
        if self._step >= 0 and step > self._step:
            self._write(self._step, self.pending(), before, now)
            gap = range(self._step + 1, step)
            if gap and now - self._at <= FILL_S:
                filled = np.full((self.capacity, len(self.columns)), np.nan, np.float32)
                filled[index] = values
                for missed in gap:
                    self._write(missed, filled, before, now)
        if step != self._step:
            self._step = step
            self._sums[:] = 0
            self._numbers[:] = 0

    def pending(self) -> Floats:
        """Means since the last written step, [slots, columns]."""
        means = self._sums / np.maximum(self._numbers, 1)
        means[self._numbers == 0] = np.nan
        return means.astype(np.float32)

    def _write(self, step: int, values: Floats, before: Doubles | None, now: float) -> None:
        fine, coarse = self.fine, self.coarse
        if step <= fine.last:
            return  # the clock was set back
        ratio = coarse.step_s // fine.step_s
        whole = fine.last // ratio
        if fine.last >= 0 and coarse.last < whole < step // ratio:
            coarse.condense(fine, whole)
        fine.advance(step)
        fine.write(values, self._totals_at(fine.time_of(step), before, now))

    def _totals_at(self, time_s: float, before: Doubles | None, now: float) -> Doubles | None:
        """Between the last tick and this one."""
        if before is None:
            return None
        share = min(max((time_s - self._at) / max(now - self._at, 1e-9), 0.0), 1.0)
        return np.where(np.isnan(before), np.nan, before + (self.totals - before) * share)

    def last_at(self) -> float:
        """Unix time of the last tick."""
        return self._at
