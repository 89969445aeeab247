"""Past numbers of all entities of one kind at regular times: of topics, of channels, or of nodes and the cluster.

A Ring has the last `points` steps, in arrays of fixed size. Step number s is the time from s * step_s to
(s + 1) * step_s, stored in row s % points. Entities have slots; those of a block share an array
[points, BLOCK, columns], so that growth needs a new block but no copy. The running totals are one array, which growth
copies: they are searched for many slots at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nsqfast.net.slices import Slices

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
    def length(self) -> int:
        """Number of known steps."""
        return self.last - self.first + 1 if self.last >= 0 else 0

    async def make_blocks(self, number: int, slices: Slices) -> list[Floats]:
        """Room for this many times BLOCK entities, all unknown; see `add_blocks`."""
        # Rows never written are never read, so only the known rows must be marked as unknown.
        rows, made = self.rows(self.length), []
        for _ in range(number):
            block = np.zeros((self.points, BLOCK, self.width), np.float32)
            block[rows] = NAN
            made.append(block)
            await slices.pause()
        return made

    def add_blocks(self, blocks: list[Floats]) -> None:
        """Take the blocks that `make_blocks` made: in one go, because the file may be written at any time."""
        self.blocks += blocks
        if self.counts is not None:
            rows, had = self.rows(self.length), self.counts.shape[1]
            counts = np.zeros((self.points, had + len(blocks) * BLOCK))
            counts[rows, :had] = self.counts[rows]
            counts[rows, had:] = np.nan
            self.counts = counts

    def rows(self, count: int) -> NDArray[np.int64]:
        """Of the last `count` known steps, oldest first."""
        count = min(count, self.length)
        return np.arange(self.last - count + 1, self.last + 1) % self.points

    async def write(
        self,
        step: int,
        make_values: Callable[[int], Floats],
        counts: Doubles | None,
        slices: Slices,
    ) -> None:
        """Write the next step; skipped ones are unknown. It is known at the end, once every block has it.

        `make_values` gets the index of a block and makes its values, [BLOCK, columns]; `counts` is [slots].
        """
        assert step > self.last
        is_far = self.last < 0 or step - self.last > self.points
        skipped = np.arange(0 if is_far else self.last + 1, 0 if is_far else step) % self.points
        first, row = step if is_far else max(self.first, step - self.points + 1), step % self.points
        self.first, self.last = (-1, -1) if is_far else (first, self.last)
        for index, block in enumerate(self.blocks):
            block[skipped] = NAN
            block[row] = make_values(index)
            await slices.pause()
        if self.counts is not None:
            carried = self.counts[self.last % self.points]
            for place in skipped:
                self.counts[place] = carried
                await slices.pause()
            self.counts[row] = counts
            await slices.pause()
        self.first, self.last = first, step

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

    async def write_means(self, step: int, source: "Ring", slices: Slices) -> None:
        """Write `step` from those of another ring: means of the known values, the last totals."""
        begin = max(step * self.step_s // source.step_s, source.first)
        end = min(-(-(step + 1) * self.step_s // source.step_s), source.last + 1)
        rows, counts = np.arange(begin, end) % source.points, None
        if source.counts is not None:
            unknown = np.full(source.counts.shape[1], np.nan)
            counts = source.counts[rows[-1]] if len(rows) else unknown
        await self.write(step, lambda index: mean(source.blocks[index][rows]), counts, slices)

    async def resample(self, step_s: int, points: int, slices: Slices) -> "Ring":
        """A ring with these steps, and the known values of this one."""
        new = Ring(step_s, points, self.width, has_counts=self.counts is not None)
        new.add_blocks(await new.make_blocks(len(self.blocks), slices))
        if self.length:
            first = max(self.first * self.step_s, (self.last + 1) * self.step_s - points * step_s)
            for step in range(first // step_s, self.last * self.step_s // step_s + 1):
                await new.write_means(step, self, slices)
        return new


def mean(values: Floats) -> Floats:
    """The mean over the first axis of the known values; nan if there are none."""
    known = ~np.isnan(values)
    number = known.sum(axis=0)
    total = np.where(known, values, 0).sum(axis=0, dtype=np.float64)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan).astype(np.float32)


Slots = NDArray[np.int64]

SLOPE_S = 300
SLOPE_POINTS_MIN = 3


async def find_slopes(ring: Ring, memory: int, slices: Slices) -> Doubles:
    """Messages per second by which the depth grew over the last five minutes, by regression; [slots], nan if too young.

    Depth is the sum of the column `memory` and the next one, what is on disk.
    """
    rows = ring.rows(SLOPE_S // ring.step_s + 1)
    found = np.full(len(ring.blocks) * BLOCK, np.nan)
    if len(rows) < SLOPE_POINTS_MIN:
        return found
    times = np.arange(len(rows), dtype=np.float64) * ring.step_s
    centred = times - times.mean()
    weights = centred / (centred @ centred)
    for index, block in enumerate(ring.blocks):
        depth = block[rows, :, memory] + block[rows, :, memory + 1]
        slope = weights @ depth
        unknown = np.flatnonzero(np.isnan(slope))
        if len(unknown):
            slope[unknown] = _slopes_with_gaps(times, depth[:, unknown])
        found[index * BLOCK : (index + 1) * BLOCK] = slope
        await slices.pause()
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


def find_ages(
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
KEYS_AT_ONCE = 4096
CLOCK_BACK_S_MAX = 60.0  # beyond it the past is of no use
FILL_S = 30.0  # ticks closer than this make no gap


class Steps(NamedTuple):
    fine_s: int
    fine_points: int
    coarse_s: int
    coarse_points: int


@dataclass(slots=True)
class StoredTable:
    slots: dict[Key, int]
    fine: Ring
    coarse: Ring
    totals: Doubles
    raw: Doubles


class HistoryTable:
    """Pass it the values of each tick with `take`; a step is written when the first tick of the next one arrives."""

    def __init__(self, columns: tuple[str, ...], steps: Steps, *, has_counts: bool) -> None:
        self.columns, self.has_counts, width = columns, has_counts, len(columns)
        self.slots: dict[Key, int] = {}
        self.fine = Ring(steps.fine_s, steps.fine_points, width, has_counts=has_counts)
        self.coarse = Ring(steps.coarse_s, steps.coarse_points, width, has_counts=has_counts)
        self.totals: Doubles = np.zeros(0)  # running; nan for a free slot
        self.raw: Doubles = np.zeros(0)  # as last reported by the nodes
        self._seen: Doubles = np.zeros(0)  # unix time
        # Since the last written step, [slots, columns]: sums and numbers of the known values.
        self._sums: Doubles = np.zeros((0, width))
        self._numbers: NDArray[np.int64] = np.zeros((0, width), np.int64)
        self._free: list[int] = []
        self._step = -1  # the step of the sums
        self.at = 0.0  # Unix time of the last tick
        self._keys: list[Key] = []  # of the last tick
        self.index: NDArray[np.int64] = np.zeros(0, np.int64)  # their slots; -1 for none

    @property
    def capacity(self) -> int:
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

    async def set_steps(self, steps: Steps, slices: Slices) -> None:
        """Change the steps; known values are kept as means."""
        fine = await self.fine.resample(steps.fine_s, steps.fine_points, slices)
        coarse = await self.coarse.resample(steps.coarse_s, steps.coarse_points, slices)
        self.fine, self.coarse = fine, coarse
        self._begin_step(-1)

    def adopt(self, stored: StoredTable, now: float) -> None:
        """Take over a file's content; the table is empty. Call `set_steps` next."""
        self.fine, self.coarse, self.slots = stored.fine, stored.coarse, stored.slots
        self._add_slots(stored.totals, stored.raw, now)
        taken = set(self.slots.values())
        self._free = [slot for slot in range(self.capacity - 1, -1, -1) if slot not in taken]

    async def grow(self, blocks: int, slices: Slices) -> None:
        """Add this many times BLOCK slots."""
        fine, coarse = self.fine, self.coarse
        fine_blocks, coarse_blocks = [
            await ring.make_blocks(blocks, slices) for ring in (fine, coarse)
        ]
        # In one go, because the file holds rings of one size.
        first, size = self.capacity, blocks * BLOCK
        fine.add_blocks(fine_blocks)
        coarse.add_blocks(coarse_blocks)
        unknown = np.full(size, np.nan)
        self._add_slots(unknown, unknown, 0.0)
        self._free += range(first + size - 1, first - 1, -1)

    def _add_slots(self, totals: Doubles, raw: Doubles, seen: float) -> None:
        shape = len(totals), len(self.columns)
        self.totals, self.raw = np.append(self.totals, totals), np.append(self.raw, raw)
        self._seen = np.append(self._seen, np.full(len(totals), seen))
        self._sums = np.concatenate([self._sums, np.zeros(shape)])
        self._numbers = np.concatenate([self._numbers, np.zeros(shape, np.int64)])

    async def missing(self, keys: list[Key], now: float, slices: Slices) -> int:
        """Number of slots missing for these keys; frees those of entities long gone if necessary."""
        new = 0
        for begin in range(0, len(keys) if keys is not self._keys else 0, KEYS_AT_ONCE):
            new += sum(key not in self.slots for key in keys[begin : begin + KEYS_AT_ONCE])
            await slices.pause()
        if new > len(self._free):
            for key, slot in list(self.slots.items()):
                if now - self._seen[slot] > KEPT_S:
                    self._release(key)
                    await slices.pause()
        return max(new - len(self._free), 0)

    def _release(self, key: Key) -> None:
        slot = self.slots.pop(key)
        self.fine.forget(slot)
        self.coarse.forget(slot)
        self.totals[slot] = self.raw[slot] = np.nan
        self._sums[slot] = 0
        self._numbers[slot] = 0
        self._free.append(slot)

    async def take(
        self, keys: list[Key], values: Doubles, counts: Doubles | None, now: float, slices: Slices
    ) -> None:
        """The values of a tick, [keys, columns], nan for unknown; `counts` as the nodes report them, [keys].

        A key without a slot has no history. The list of keys stays the same object while nothing comes or goes.
        """
        if now < self.at - CLOCK_BACK_S_MAX:
            for ring in (self.fine, self.coarse):
                ring.first = ring.last = -1
            self._step = -1
        if keys is not self._keys:
            self.index, self._keys = await self._assign_slots(keys, now, slices), keys
        index, kept = self.index, self.index >= 0
        if not kept.all():
            index, values = index[kept], values[kept]
            counts = counts[kept] if counts is not None else None
        before = self.totals.copy() if self.has_counts else None
        parts = [slice(first, first + KEYS_AT_ONCE) for first in range(0, len(index), KEYS_AT_ONCE)]
        if counts is not None:
            for part in parts:
                self._count(index[part], values[part, 0], counts[part], now)
                await slices.pause()
        await self._finish_steps(index, values, before, now, slices)
        await slices.pause()
        self._seen[index] = now
        for part in parts:
            some, slots = values[part], index[part]
            known = ~np.isnan(some)
            self._sums[slots] += np.where(known, some, 0)
            self._numbers[slots] += known
            await slices.pause()
        self.at = now

    async def _assign_slots(self, keys: list[Key], now: float, slices: Slices) -> Slots:
        found = np.full(len(keys), -1, np.int64)
        for position, key in enumerate(keys):
            slot = self.slots.get(key, -1)
            if slot < 0 and self._free:
                slot = self.slots[key] = self._free.pop()
                self._seen[slot] = now
            found[position] = slot
            if position % KEYS_AT_ONCE == 0:
                await slices.pause()
        return found

    def _count(self, index: NDArray[np.int64], in_s: Doubles, counts: Doubles, now: float) -> None:
        """Running totals grow by the counts if they fit the rate, else by the rate.

        The counts jump when a node comes, goes or restarts, and then nothing was published.
        """
        raw, totals = self.raw[index], self.totals[index]
        grown = counts - raw
        expected = np.where(np.isnan(in_s), 0.0, in_s) * (now - self.at)
        fits = (grown >= 0) & (grown <= 4 * expected + 10)
        is_new = np.isnan(totals)
        totals = np.where(is_new, counts, totals + np.where(fits, grown, expected))
        self.totals[index], self.raw[index] = totals, counts

    async def _finish_steps(
        self, index: Slots, values: Doubles, before: Doubles | None, now: float, slices: Slices
    ) -> None:
        step = int(now // self.fine.step_s)
        if self._step >= 0 and step > self._step:
            await self._write(self._step, self.means, before, now, slices)
            gap = range(self._step + 1, step)
            if gap and now - self.at <= FILL_S:
                filled = np.full((self.capacity, len(self.columns)), np.nan, np.float32)
                filled[index] = values
                for missed in gap:
                    await self._write(missed, filled.__getitem__, before, now, slices)
        if step != self._step:
            self._begin_step(step)

    def _begin_step(self, step: int) -> None:
        self._step = step
        self._sums[:] = 0
        self._numbers[:] = 0

    def means(self, slots: slice) -> Floats:
        """Means since the last written step, [slots, columns]."""
        numbers = self._numbers[slots]
        means = self._sums[slots] / np.maximum(numbers, 1)
        means[numbers == 0] = np.nan
        return means.astype(np.float32)

    async def _write(
        self,
        step: int,
        values: Callable[[slice], Floats],
        before: Doubles | None,
        now: float,
        slices: Slices,
    ) -> None:
        """`values` makes those of some slots: of all at once they would take long."""
        fine, coarse = self.fine, self.coarse
        if step <= fine.last:
            return  # the clock was set back
        ratio = coarse.step_s // fine.step_s
        whole = fine.last // ratio
        if fine.last >= 0 and coarse.last < whole < step // ratio:
            await coarse.write_means(whole, fine, slices)
        totals = self._totals_at((step + 1.0) * fine.step_s, before, now)
        await slices.pause()
        await fine.write(step, lambda i: values(slice(i * BLOCK, (i + 1) * BLOCK)), totals, slices)

    def _totals_at(self, time_s: float, before: Doubles | None, now: float) -> Doubles | None:
        """Between the last tick and this one."""
        if before is None:
            return None
        share = min(max((time_s - self.at) / max(now - self.at, 1e-9), 0.0), 1.0)
        return np.where(np.isnan(before), np.nan, before + (self.totals - before) * share)
