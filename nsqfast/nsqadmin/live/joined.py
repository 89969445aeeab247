"""The rows of all nodes, joined by topic and channel, and summed; in slices, because there may be 100,000 of them."""

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from nsqfast.nsqadmin.live.parts import (
    COUNTS,
    PAUSED,
    RATES,
    VALUES,
    Counts,
    Doubles,
    Ints,
    Part,
    Parts,
    Rates,
    Rows,
)
from nsqfast.nsqadmin.live.samples import BLOCK, find_rows, index_names
from nsqfast.nsqadmin.live.slices import Slices

ENTITIES_AT_ONCE = 256

Name = TypeVar("Name", bound=Hashable)


Where = slice | Ints


@dataclass(slots=True)
class Places(Generic[Name]):
    """Where the rows of each node belong. Unchanged between ticks while the nodes report the same names."""

    names: list[Name] = field(default_factory=list)  # of the entities, sorted
    entities: list[Where] = field(default_factory=list)  # of each node: indexes of `names`
    begins: list[int] = field(
        default_factory=lambda: [0]
    )  # of each entity, and the end of the last
    order: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # see parts.Rows
    nodes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


async def find_places(lists: Sequence[Sequence[Name]], slices: Slices) -> Places[Name]:
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
    entities = [found_rows[id(names)] for names in lists]
    sizes = np.zeros(len(known), np.int64)
    for found in entities:
        sizes[found] += 1
    await slices.pause()
    where = {key: _as_slice(found) for key, found in found_rows.items()}
    ends = sizes.cumsum()
    free, rows = ends - sizes, int(sizes.sum())
    order, nodes, begin = np.empty(rows, np.int64), np.empty(rows, np.int64), 0
    for node, found in enumerate(entities):
        taken = free[found]
        free[found] += 1
        order[taken] = np.arange(begin, begin + len(found))
        nodes[taken] = node
        begin += len(found)
        await slices.pause()
    return Places(known, [where[id(names)] for names in lists], [0, *ends.tolist()], order, nodes)


def _as_slice(indexes: Ints) -> Where:
    """Use a slice if they are consecutive, as on a node that has everything: ten times faster."""
    if len(indexes) and (np.diff(indexes) == 1).all():
        return slice(int(indexes[0]), int(indexes[-1]) + 1)
    return indexes


class Memory:
    """Memory for the rows of a tick; reused when nobody has that tick any more.

    New memory costs a page fault for each 4 kB written, which takes longer than the writing.
    """

    def __init__(self) -> None:
        self._arrays: list[tuple[ReferenceType[Rows], Ints, Doubles]] = []

    def take(self, keys: Sequence[str], order: Ints, nodes: Ints) -> Rows:
        """Arrays with arbitrary content."""
        count = len(order)
        self._arrays = [one for one in self._arrays if len(one[1]) == count or one[0]()]
        free = next((one for one in self._arrays if len(one[1]) == count and not one[0]()), None)
        if free is None:
            values, rates = np.empty((count, VALUES), np.int64), np.empty((count, RATES))
        else:
            self._arrays = [one for one in self._arrays if one is not free]
            values, rates = free[1:]
        rows = Rows(keys, order, nodes, values, rates)
        self._arrays.append((ref(rows), values, rates))
        return rows


@dataclass(slots=True)
class Joined:
    """The result of one tick."""

    rows: Rows
    begins: list[int]
    values: Ints  # [entities, VALUES], summed, so PAUSED counts the nodes where it is; ages mean nothing
    rates: Doubles  # [entities, RATES], sums of the known ones
    is_known: NDArray[np.bool_]  # [entities], on any node


async def join(
    places: Places[Name],
    memory: Memory,
    keys: Sequence[str],
    values: Sequence[Ints],
    rates: Sequence[Doubles],
    slices: Slices,
) -> Joined:
    """`values` and `rates` of each node; the nodes' `keys`."""
    rows = memory.take(keys, places.order, places.nodes)
    count = len(places.names)
    found = Joined(
        rows,
        places.begins,
        np.zeros((count, VALUES), np.int64),
        np.zeros((count, RATES)),
        np.zeros(count, bool),
    )
    row = 0
    for node, where in enumerate(places.entities):
        for begin in range(0, len(values[node]), BLOCK):
            some, some_rates = (
                values[node][begin : begin + BLOCK],
                rates[node][begin : begin + BLOCK],
            )
            rows.values[row : row + len(some)] = some
            rows.rates[row : row + len(some)] = some_rates
            row += len(some)
            _add(found, _part_of(where, begin), some, some_rates)
            await slices.pause()
    return found


def _part_of(where: Where, begin: int) -> Where:
    if isinstance(where, slice):
        return slice(where.start + begin, min(where.start + begin + BLOCK, where.stop))
    return where[begin : begin + BLOCK]


def _add(joined: Joined, where: Where, values: Ints, rates: Doubles) -> None:
    joined.values[where] += values
    known = rates[:, 0] == rates[:, 0]
    if known.all():
        joined.rates[where] += rates
        joined.is_known[where] = True
    else:
        joined.rates[where] += np.where(known[:, None], rates, 0.0)
        joined.is_known[where] |= known


Entity = tuple[Counts, Sequence[Part], Rates | None]


def make_entities(joined: Joined) -> Iterator[Entity]:
    """Make them one after another; a few at a time are read from the arrays."""
    rows, begins = joined.rows, joined.begins
    for begin in range(0, len(joined.values), ENTITIES_AT_ONCE):
        block = slice(begin, begin + ENTITIES_AT_ONCE)
        for index, values, rates, is_known in zip(
            itertools.count(begin),
            joined.values[block].tolist(),
            joined.rates[block].tolist(),
            joined.is_known[block].tolist(),
            strict=False,
        ):
            parts = Parts(rows, begins[index], begins[index + 1], values[PAUSED])
            found = Rates(*rates) if is_known else None
            yield Counts(*values[:COUNTS]), cast("Sequence[Part]", parts), found
