"""Past numbers of all entities of one kind at regular times: of topics, of channels, or of nodes and the cluster.

A Ring has the last `points` steps, in arrays of fixed size. Step number s is the time from s * step_s to
(s + 1) * step_s, stored in row s % points. Entities have slots; those of a block share an array
[points, BLOCK, columns], so that growth needs a new block but no copy. The running totals are one array, which growth
copies: they are searched for many slots at once.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# () is the whole cluster; ("topic", T), ("channel", T, C), ("node", key of Cluster.nodes).
Key = tuple[str, ...]

TOPIC_COLUMNS = ("in_s", "memory_depth", "backend_depth")
CHANNEL_COLUMNS = (
    "in_s",
    "out_s",
    "requeue_s",
    "timeout_s",
    "memory_depth",
    "backend_depth",
    "in_flight",
    "deferred",
)
NODE_COLUMNS = (*CHANNEL_COLUMNS, "clients", "memory")  # used for the cluster as well


@dataclass(frozen=True, slots=True)
class Mark:
    """An event: an action, or a restart."""

    at: float  # unix time
    text: str
    key: Key

    def is_about(self, key: Key) -> bool:
        """Whether it belongs in the chart of `key`: a restart in those of all topics, a topic's in its channels'."""
        if not self.key or not key or self.key == key:
            return True
        if "node" in {self.key[0], key[0]}:
            return self.key[0] == "node" and key[0] != "node"
        return self.key[1] == key[1] and "topic" in {self.key[0], key[0]}


@dataclass(slots=True)
class Series:
    """`columns` by name, each as long as `times`; nan is unknown. Beyond the known range it is short, or empty."""

    step_s: float
    times: NDArray[np.float64]  # unix seconds, growing: the ends of the steps, the last one is now
    columns: dict[str, NDArray[np.float32]]
    marks: list[Mark] = field(default_factory=list)


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


Slots = NDArray[np.int64]

SLOPE_S = 300
SLOPE_POINTS_MIN = 3


def slopes(ring: Ring, memory: int, backend: int) -> Doubles:
    """Messages per second by which the depth grew over the last five minutes, by regression; [slots], nan if too young.

    Depth is the sum of the columns `memory` and `backend`.
    """
    rows = ring.rows(SLOPE_S // ring.step_s + 1)
    found = np.full(len(ring.blocks) * BLOCK, np.nan)
    if len(rows) < SLOPE_POINTS_MIN:
        return found
    times = np.arange(len(rows), dtype=np.float64) * ring.step_s
    centred = times - times.mean()
    weights = centred / (centred @ centred)
    for index, block in enumerate(ring.blocks):
        depth = block[rows, :, memory] + block[rows, :, backend]
        slope = weights @ depth
        unknown = np.flatnonzero(np.isnan(slope))
        if len(unknown):
            slope[unknown] = _slopes_with_gaps(times, depth[:, unknown])
        found[index * BLOCK : (index + 1) * BLOCK] = slope
    return found


def _slopes_with_gaps(times: Doubles, depth: Floats) -> Doubles:
    known = ~np.isnan(depth)
    number = known.sum(axis=0)
    x = np.where(known, times[:, None], 0.0)
    y = np.where(known, depth, 0.0)
    sum_x, sum_y = x.sum(axis=0), y.sum(axis=0)
    above = number * (x * y).sum(axis=0) - sum_x * sum_y
    below = number * (x * x).sum(axis=0) - sum_x * sum_x
    return np.where(number >= SLOPE_POINTS_MIN, above / np.where(below > 0, below, 1), np.nan)


def oldest(
    rings: list[Ring], slots: Slots, depth: Doubles, totals: Doubles, now: float
) -> tuple[Doubles, NDArray[np.bool_]]:
    """Age in seconds of the oldest waiting message in each of `slots`, and whether it is a lower bound.

    Assuming first in, first out, it came when the total passed (total now - depth). The rings are searched one after
    another, the finest first.
    """
    goals = totals - depth
    ages, is_minimum = np.zeros(len(slots)), np.ones(len(slots), bool)
    for ring in rings:
        left = np.flatnonzero(is_minimum)
        if not len(left):
            break
        found, is_minimum[left] = _search(ring, slots[left], goals[left], totals[left], now)
        # A ring that does not reach further back knows no more than the first.
        ages[left] = np.where(is_minimum[left], np.maximum(ages[left], found), found)
    return ages, is_minimum


def _search(
    ring: Ring, slots: Slots, goals: Doubles, totals: Doubles, now: float
) -> tuple[Doubles, NDArray[np.bool_]]:
    counts = ring.counts
    assert counts is not None
    if not ring.length:
        return np.zeros(len(slots)), np.ones(len(slots), bool)
    # The last step whose total was not beyond the goal; nothing is known before a slot's first one (nan).
    low = np.full(len(slots), ring.first - 1)
    high = np.full(len(slots), ring.last + 1)
    while True:
        undecided = high - low > 1
        if not undecided.any():
            break
        middle = np.where(undecided, (low + high) // 2, low)
        beyond = counts[middle % ring.points, slots] > goals
        high = np.where(undecided & beyond, middle, high)
        low = np.where(undecided & ~beyond, middle, low)
    before = np.where(low >= ring.first, counts[low % ring.points, slots], np.nan)
    is_now = high > ring.last
    after = np.where(is_now, totals, counts[np.minimum(high, ring.last) % ring.points, slots])
    until = np.where(is_now, now, (high + 1.0) * ring.step_s)
    since = np.minimum((low + 1.0) * ring.step_s, until)
    is_minimum = np.isnan(before)
    share = (goals - before) / np.where(after > before, after - before, 1.0)
    times = np.where(is_minimum, until, since + np.clip(share, 0, 1) * (until - since))
    return np.maximum(now - times, 0.0), is_minimum


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
