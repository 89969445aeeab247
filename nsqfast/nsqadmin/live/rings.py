"""Numbers of many entities at regular times: the last `points` steps, in arrays of fixed size.

Step number s is the time from s * step_s to (s + 1) * step_s, stored in row s % points. Entities have slots; those of a
block share an array [points, BLOCK, columns], so that growth needs a new block but no copy. The running totals are one
array, which growth copies: they are searched for many slots at once.
"""

import numpy as np
from numpy.typing import NDArray

BLOCK = 64  # entities
NAN = np.float32(np.nan)

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


class Ring:
    """`counts` are running totals at the ends of the steps, for kinds that have them."""

    def __init__(self, step_s: int, points: int, width: int, *, has_counts: bool) -> None:
        self.step_s, self.points, self.width = step_s, points, width
        self.blocks: list[Floats] = []
        self.counts: Doubles | None = np.zeros((points, 0)) if has_counts else None
        self.first = self.last = -1  # numbers of the known steps; -1: none

    @property
    def size_bytes(self) -> int:
        """Of all arrays."""
        return sum(block.nbytes for block in self.blocks) + (
            self.counts.nbytes if self.counts is not None else 0
        )

    @property
    def length(self) -> int:
        """Number of known steps."""
        return self.last - self.first + 1 if self.last >= 0 else 0

    def add_blocks(self, number: int) -> None:
        """Add room for this many times BLOCK entities, all unknown."""
        # Rows never written are never read, so only the known rows must be marked as unknown.
        rows = self.rows(self.length)
        for _ in range(number):
            block = np.zeros((self.points, BLOCK, self.width), np.float32)
            block[rows] = NAN
            self.blocks.append(block)
        if self.counts is not None:
            had = self.counts.shape[1]
            counts = np.zeros((self.points, had + number * BLOCK))
            counts[rows, :had] = self.counts[rows]
            counts[rows, had:] = np.nan
            self.counts = counts

    def rows(self, count: int) -> NDArray[np.int64]:
        """Of the last `count` known steps, oldest first."""
        count = min(count, self.length)
        return np.arange(self.last - count + 1, self.last + 1) % self.points

    def advance(self, step: int) -> None:
        """Make `step` the next row to write; skipped steps are unknown."""
        if self.last < 0 or step - self.last > self.points:
            self.first = self.last = step
            return
        assert step > self.last
        skipped = np.arange(self.last + 1, step) % self.points
        for block in self.blocks:
            block[skipped] = NAN
        if self.counts is not None:
            self.counts[skipped] = self.counts[self.last % self.points]
        self.last = step
        self.first = max(self.first, step - self.points + 1)

    def write(self, values: Floats, counts: Doubles | None) -> None:
        """Write the last row: [slots, columns], and [slots]."""
        row = self.last % self.points
        for index, block in enumerate(self.blocks):
            block[row] = values[index * BLOCK : (index + 1) * BLOCK]
        if self.counts is not None:
            self.counts[row] = counts

    def forget(self, slot: int) -> None:
        """The slot belongs to another entity from now on."""
        block, offset = divmod(slot, BLOCK)
        self.blocks[block][:, offset] = NAN
        if self.counts is not None:
            self.counts[:, slot] = np.nan

    def read(self, slot: int, count: int) -> Floats:
        """[steps, columns] of the last `count` known steps, oldest first."""
        block, offset = divmod(slot, BLOCK)
        values: Floats = self.blocks[block][self.rows(count), offset]
        return values

    def time_of(self, step: int) -> float:
        """The Unix time of its end."""
        return float((step + 1) * self.step_s)

    def condense(self, fine: "Ring", step: int) -> None:
        """Write row `step` from those of a finer ring: means of the known values, the last totals."""
        self.advance(step)
        ratio = self.step_s // fine.step_s
        steps = np.arange(max(step * ratio, fine.first), min((step + 1) * ratio - 1, fine.last) + 1)
        row = self.last % self.points
        for index, block in enumerate(self.blocks):
            block[row] = mean(fine.blocks[index][steps % fine.points])
        if self.counts is not None and fine.counts is not None:
            self.counts[row] = fine.counts[steps[-1] % fine.points] if len(steps) else np.nan


def mean(values: Floats) -> Floats:
    """The mean over the first axis of the known values; nan if there are none."""
    known = ~np.isnan(values)
    number = known.sum(axis=0)
    total = np.where(known, values, 0).sum(axis=0, dtype=np.float64)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan).astype(np.float32)


def resample(old: Ring, new: Ring) -> None:
    """Fill `new`, which is empty, with the known values of `old`; its blocks are created as well."""
    new.add_blocks(len(old.blocks))
    if not old.length:
        return
    first = max(old.first * old.step_s, (old.last + 1) * old.step_s - new.points * new.step_s)
    for step in range(first // new.step_s, old.last * old.step_s // new.step_s + 1):
        begin = max(step * new.step_s // old.step_s, old.first)
        end = min(-(-(step + 1) * new.step_s // old.step_s), old.last + 1)
        if end <= begin:
            continue
        new.advance(step)
        rows, row = np.arange(begin, end) % old.points, new.last % new.points
        for index, block in enumerate(new.blocks):
            block[row] = mean(old.blocks[index][rows])
        if new.counts is not None and old.counts is not None:
            new.counts[row] = old.counts[rows[-1]]
