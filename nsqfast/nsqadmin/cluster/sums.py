"""The rows of all nodes at one tick, put together by topic and by channel, and summed.

In arrays and in slices, because there may be 100,000 rows: lists take a hundred times as long.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.model import (
    COUNTS,
    DEPTH,
    NO_INTS,
    OLDEST,
    PAUSED,
    RATES,
    VALUES,
    Bools,
    Counts,
    Doubles,
    Ints,
    NodeParts,
    Rates,
    Rows,
)
from nsqfast.nsqadmin.cluster.samples import BLOCK, find_rows, index_names

ROWS_AT_ONCE = 256

Name = TypeVar("Name", bound=Hashable)
Places: TypeAlias = slice | Ints


@dataclass(slots=True)
class RowPlaces(Generic[Name]):
    """Where the rows of each node belong. Unchanged between ticks while the nodes report the same names."""

    names: list[Name] = field(default_factory=list)  # of the topics or channels, sorted
    of_nodes: list[Places] = field(default_factory=list)  # of each node's rows: indexes of `names`
    begins: Ints = field(default_factory=lambda: np.zeros(1, np.int64))  # [names + 1], of `order`
    order: Ints = field(default_factory=lambda: NO_INTS)  # see Rows
    nodes: Ints = field(default_factory=lambda: NO_INTS)


async def find_places(lists: Sequence[Sequence[Name]], slices: Slices) -> RowPlaces[Name]:
    """Compute it from the names that each node reports, none of them twice."""
    distinct = {id(names): names for names in lists}  # many nodes may share one
    every: dict[Name, None] = {}
    for names in distinct.values():
        for begin in range(0, len(names), BLOCK):
            every.update(dict.fromkeys(names[begin : begin + BLOCK]))
            await slices.pause()
    known = sorted(every)  # type: ignore[type-var]
    await slices.pause()
    index = await index_names(known, slices)
    found_rows = {key: await find_rows(index, names, slices) for key, names in distinct.items()}
    indexes = [found_rows[id(names)] for names in lists]
    sizes = np.zeros(len(known), np.int64)
    for found in indexes:
        sizes[found] += 1
    await slices.pause()
    places = {key: _as_slice(found) for key, found in found_rows.items()}
    ends = sizes.cumsum()
    free, rows = ends - sizes, int(sizes.sum())
    order, nodes, begin = np.empty(rows, np.int64), np.empty(rows, np.int64), 0
    for node, found in enumerate(indexes):
        taken = free[found]
        free[found] += 1
        order[taken] = np.arange(begin, begin + len(found))
        nodes[taken] = node
        begin += len(found)
        await slices.pause()
    begins = np.concatenate([np.zeros(1, np.int64), ends])
    for array in (begins, order, nodes):
        array.setflags(write=False)
    return RowPlaces(known, [places[id(names)] for names in lists], begins, order, nodes)


def _as_slice(indexes: Ints) -> Places:
    """Use a slice if they are consecutive, as on a node that has everything: ten times faster."""
    if len(indexes) and (np.diff(indexes) == 1).all():
        return slice(int(indexes[0]), int(indexes[-1]) + 1)
    return indexes


def _block_of(places: Places, begin: int) -> Places:
    if isinstance(places, slice):
        return slice(places.start + begin, min(places.start + begin + BLOCK, places.stop))
    return places[begin : begin + BLOCK]


@dataclass(frozen=True, slots=True)
class Sums(Generic[Name]):
    """All topics, or all channels, of one tick."""

    names: Sequence[Name]  # sorted
    rows: Rows
    begins: Ints  # [names + 1], of Rows.order: where the rows of each begin
    # [names, VALUES], summed, so PAUSED counts the nodes where it is; ages mean nothing.
    values: Ints
    rates: Doubles  # [names, RATES], sums of the known ones
    is_known: Bools  # [names], on any node

    def is_on(self, is_wanted: Bools) -> Bools:
        """Which of them are on one of the nodes for which this is true; [nodes of Rows.keys]."""
        found: Bools = np.logical_or.reduceat(is_wanted[self.rows.nodes], self.begins[:-1])
        return found

    def oldest_ms(self) -> Ints:
        """The age of the oldest message of each, if every node where messages wait reports it; else 0."""
        reported = self.rows.values[:, OLDEST]
        if not reported.any():
            return np.zeros(len(self.names), np.int64)
        depth = self.rows.values[:, DEPTH][self.rows.order]
        ages = np.where(depth > 0, reported[self.rows.order], 0)
        oldest = np.maximum.reduceat(ages, self.begins[:-1])
        is_silent = np.logical_or.reduceat((depth > 0) & (ages == 0), self.begins[:-1])
        return np.where(is_silent, 0, oldest)

    def queues(self) -> Iterator[tuple[Counts, NodeParts, Rates | None]]:
        """What a Topic or Channel is made of, one after another."""
        bounds = self.begins[:-1], self.begins[1:]
        for begin, end, values, rates, is_known in read_rows(
            *bounds, self.values, self.rates, self.is_known
        ):
            parts = NodeParts(self.rows, begin, end, values[PAUSED])
            yield Counts(*values[:COUNTS]), parts, Rates(*rates) if is_known else None


def read_rows(*arrays: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of these arrays as objects of Python, a few at a time."""
    for begin in range(0, len(arrays[0]), ROWS_AT_ONCE):
        lists = [array[begin : begin + ROWS_AT_ONCE].tolist() for array in arrays]
        yield from zip(*lists, strict=True)


async def sum_rows(
    places: RowPlaces[Name],
    keys: Sequence[str],
    values: Sequence[Ints],
    rates: Sequence[Doubles],
    slices: Slices,
) -> Sums[Name]:
    """`values` and `rates` of each node; the nodes' `keys`. The arrays of the result are read-only."""
    size, count = len(places.order), len(places.names)
    rows = Rows(
        keys,
        places.order,
        places.nodes,
        np.empty((size, VALUES), np.int64),
        np.empty((size, RATES)),
    )
    sums, summed = np.zeros((count, VALUES), np.int64), np.zeros((count, RATES))
    is_known, row = np.zeros(count, bool), 0
    for node, where in enumerate(places.of_nodes):
        for begin in range(0, len(values[node]), BLOCK):
            some = values[node][begin : begin + BLOCK]
            some_rates = rates[node][begin : begin + BLOCK]
            rows.values[row : row + len(some)] = some
            rows.rates[row : row + len(some)] = some_rates
            row += len(some)
            block, known = _block_of(where, begin), some_rates[:, 0] == some_rates[:, 0]
            sums[block] += some
            summed[block] += np.where(known[:, None], some_rates, 0.0)
            is_known[block] |= known
            await slices.pause()
    for array in (rows.values, rows.rates, sums, summed, is_known):
        array.setflags(write=False)
    return Sums(places.names, rows, places.begins, sums, summed, is_known)
