"""Trends of backlogs from the rings: how fast they grow, and since when the oldest message waits."""

import numpy as np
from numpy.typing import NDArray

from nsqfast.nsqadmin.live.rings import BLOCK, Doubles, Floats, Ring

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
