"""Past numbers of topics, channels and nodes for charts, in rings of fixed size.

A fine ring has the last hour, a coarse one all of --history; their steps are the smallest for which everything fits
into --history-memory.
"""

import asyncio
import collections
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.history_file import HistoryFileError, is_ours, load, save, snapshot
from nsqfast.nsqadmin.cluster.history_tables import (
    BLOCK,
    CHANNEL_COLUMNS,
    KEYS_AT_ONCE,
    NODE_COLUMNS,
    SLOPE_S,
    TOPIC_COLUMNS,
    Doubles,
    HistoryTable,
    Key,
    Mark,
    Series,
    Steps,
    StoredTable,
    find_ages,
    find_slopes,
)
from nsqfast.nsqadmin.cluster.kept_file import Saver
from nsqfast.nsqadmin.cluster.model import (
    BACKEND,
    DEFERRED,
    DEPTH,
    IN,
    IN_FLIGHT,
    MESSAGES,
    RATES,
    Bools,
    Node,
    NodeState,
    Rates,
    Totals,
)
from nsqfast.nsqadmin.cluster.sums import Sums
from nsqfast.nsqadmin.options import Options

log = logging.getLogger("nsqadmin")

FINE_RANGE_S = 3600
STEPS_S = ((10, 60), (10, 120), (20, 120), (20, 300), (30, 300), (60, 300), (60, 600))
MARKS_MAX = 1000
SPARKLINE_POINTS = 30
SAVE_INTERVAL_S = 300.0
UNKNOWN = float("nan")
AGES_AT_ONCE = 1024


class Trends(NamedTuple):
    """What the past says of the topics and channels of a tick, in their order; nan: unknown."""

    topic_slopes: Doubles
    channel_slopes: Doubles
    ages_s: Doubles  # of the oldest message of each channel; see Channel for the rest
    is_minimum: Bools
    is_estimate: Bools


class History:
    """Takes each tick before it is published; see `series` for the output."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._history_s = max(options.history_ns // 1_000_000_000, FINE_RANGE_S)
        self._plan = 0  # index of STEPS_S
        steps = self._steps(self._plan)
        self.topics = HistoryTable(TOPIC_COLUMNS, steps, has_counts=False)
        self.channels = HistoryTable(CHANNEL_COLUMNS, steps, has_counts=True)
        self.nodes = HistoryTable(NODE_COLUMNS, steps, has_counts=False)
        self.marks: collections.deque[Mark] = collections.deque(maxlen=MARKS_MAX)
        self._is_full = False
        self._start_times: dict[str, int] = {}
        # Nodes that lost messages, until (Unix time) the slopes have forgotten it.
        self._lossy: dict[str, float] = {}
        self._names: tuple[object, ...] = ()  # of the last tick
        self._keys: tuple[list[Key], list[Key], list[Key]] = ([], [], [])
        self._topic_slopes: Doubles = np.zeros(0)
        self._channel_slopes: Doubles = np.zeros(0)
        self._saver = Saver(self.save, SAVE_INTERVAL_S)
        self.stop = self._saver.stop

    @property
    def tables(self) -> tuple[HistoryTable, HistoryTable, HistoryTable]:
        return self.topics, self.channels, self.nodes

    # Input: ticks

    async def take(
        self,
        at: float,
        nodes: Mapping[str, Node],
        totals: Totals,
        topics: Sums[str],
        channels: Sums[tuple[str, str]],
        slices: Slices,
    ) -> Trends:
        self._find_restarts(nodes)
        self._find_losses(at, nodes)
        await self._make_keys(topics.names, channels.names, list(nodes), slices)
        topic_keys, channel_keys, node_keys = self._keys
        is_up = np.array([node.state is NodeState.UP for node in nodes.values()], bool)
        topic_values = _topic_values(topics, is_up)
        await slices.pause()
        channel_values, channel_sums = await _channel_values(channels, is_up, slices)
        topic_sums = np.nansum(topic_values, axis=0)
        node_rows = [_cluster_row(nodes, totals, topic_sums, channel_sums)]
        node_rows += [_node_row(node) for node in nodes.values()]
        await self._make_room(at, slices)
        step = self.channels.fine.last
        await self.topics.take(topic_keys, topic_values, None, at, slices)
        counts = channels.values[:, MESSAGES].astype(np.float64)
        await self.channels.take(channel_keys, channel_values, counts, at, slices)
        await self.nodes.take(node_keys, np.array(node_rows), None, at, slices)
        is_grown = len(self._channel_slopes) != self.channels.capacity
        is_grown = is_grown or len(self._topic_slopes) != self.topics.capacity
        if step != self.channels.fine.last or is_grown:
            self._topic_slopes = await find_slopes(self.topics.fine, 1, slices)
            self._channel_slopes = await find_slopes(self.channels.fine, 4, slices)
        is_lossy = np.array([key in self._lossy for key in nodes], bool)
        return Trends(
            _slopes_of(topics, self.topics, self._topic_slopes, is_lossy),
            _slopes_of(channels, self.channels, self._channel_slopes, is_lossy),
            *await self._find_ages(channels, at, slices),
        )

    async def _make_keys(
        self,
        topics: Sequence[str],
        channels: Sequence[tuple[str, str]],
        nodes: list[str],
        slices: Slices,
    ) -> None:
        """Their keys, rebuilt only if they differ from the last tick's, because there may be thousands."""
        names = topics, channels, nodes
        if names != self._names:
            channel_keys: list[Key] = []
            for begin in range(0, len(channels), KEYS_AT_ONCE):
                some = channels[begin : begin + KEYS_AT_ONCE]
                channel_keys += [("channel", *name) for name in some]
                await slices.pause()
            node_keys: list[Key] = [(), *(("node", key) for key in nodes)]
            self._keys = [("topic", topic) for topic in topics], channel_keys, node_keys
            self._names = names

    async def _find_ages(
        self, channels: Sums[tuple[str, str]], at: float, slices: Slices
    ) -> tuple[Doubles, Bools, Bools]:
        """Of the oldest message of each channel, as the nodes report it, or else as the past tells."""
        await slices.pause()
        table, depth = self.channels, channels.values[:, DEPTH]
        reported_s = channels.oldest_ms() / 1e3
        ages_s, is_minimum = np.full(len(depth), UNKNOWN), np.zeros(len(depth), bool)
        is_estimate = np.ones(len(depth), bool)
        waiting = np.flatnonzero((depth > 0) & (table.index >= 0))
        for begin in range(0, len(waiting), AGES_AT_ONCE):
            await slices.pause()
            some = waiting[begin : begin + AGES_AT_ONCE]
            slots, goals = table.index[some], depth[some].astype(np.float64)
            found = find_ages([table.fine, table.coarse], slots, goals, table.totals[slots], at)
            is_reported = reported_s[some] > 0
            ages_s[some] = np.where(is_reported, reported_s[some], found[0])
            is_minimum[some], is_estimate[some] = found[1] & ~is_reported, ~is_reported
        return ages_s, is_minimum, is_estimate

    def _find_losses(self, at: float, nodes: Mapping[str, Node]) -> None:
        for key, node in nodes.items():
            if node.unclean_start is not None and node.unclean_start.messages != 0:
                self._lossy[key] = min(node.start_time, at) + SLOPE_S
        self._lossy = {key: end for key, end in self._lossy.items() if end > at}

    def _find_restarts(self, nodes: Mapping[str, Node]) -> None:
        for key, node in nodes.items():
            before = self._start_times.get(key)
            if before and node.start_time and node.start_time != before:
                self.mark(f"nsqd {node.hostname} ({key}) restarted", ("node", key))
        self._start_times = {key: node.start_time for key, node in nodes.items()}

    # Memory

    async def _make_room(self, at: float, slices: Slices) -> None:
        missing = [
            await table.missing(wanted, at, slices)
            for table, wanted in zip(self.tables, self._keys, strict=True)
        ]
        blocks = [-(-number // BLOCK) for number in missing]
        while any(blocks) and self._bytes(self._plan, blocks) > self._options.history_memory:
            if self._plan + 1 == len(STEPS_S):
                if not self._is_full:
                    log.warning("charts: --history-memory is too small for all topics and channels")
                    self._is_full = True
                return
            await self._use_plan(self._plan + 1, slices)
        for table, number in zip(self.tables, blocks, strict=True):
            if number:
                await table.grow(number, slices)

    def _steps(self, plan: int) -> Steps:
        fine_s, coarse_s = STEPS_S[plan]
        return Steps(fine_s, FINE_RANGE_S // fine_s, coarse_s, self._history_s // coarse_s)

    def _bytes(self, plan: int, blocks: list[int]) -> int:
        steps = self._steps(plan)
        return sum(
            (table.capacity + number * BLOCK)
            * (steps.fine_points + steps.coarse_points)
            * (4 * len(table.columns) + 8 * table.has_counts)
            for table, number in zip(self.tables, blocks, strict=True)
        )

    async def _use_plan(self, plan: int, slices: Slices) -> None:
        for table in self.tables:
            await table.set_steps(self._steps(plan), slices)
        self._plan = plan

    async def _adopt(self, stored: list[StoredTable]) -> None:
        """Take over a file's content, before the first tick."""
        for table, part in zip(self.tables, stored, strict=True):
            table.adopt(part, time.time())
        plan, memory_max = 0, self._options.history_memory
        while self._bytes(plan, [0, 0, 0]) > memory_max and plan + 1 < len(STEPS_S):
            plan += 1
        await self._use_plan(plan, Slices())

    # Output

    def mark(self, text: str, key: Key = ()) -> None:
        self.marks.append(Mark(time.time(), text, key))

    def series(self, key: Key, range_s: int) -> Series:
        """The last `range_s` seconds of one entity; nothing for an unknown one."""
        kinds = {"topic": self.topics, "channel": self.channels, "node": self.nodes}
        table = kinds[key[0] if key else "node"]
        ring = table.fine if range_s <= FINE_RANGE_S else table.coarse
        slot = table.slots.get(key)
        last_at = table.at
        if slot is None:
            nothing = np.zeros(0, np.float32)
            return Series(ring.step_s, np.zeros(0), dict.fromkeys(table.columns, nothing))
        count = min(range_s // ring.step_s, ring.length)
        values = np.concatenate([ring.read(slot, count), table.means(slice(slot, slot + 1))])
        steps = np.arange(ring.last - count + 1, ring.last + 1)
        times = np.append((steps + 1.0) * ring.step_s, last_at)
        kept = times >= last_at - range_s
        columns = {name: values[kept, index] for index, name in enumerate(table.columns)}
        marks = [m for m in self.marks if m.at >= last_at - range_s and m.is_about(key)]
        return Series(ring.step_s, times[kept], columns, marks)

    def sparkline(self, *keys: Key) -> list[float | None]:
        """Thirty means over the last hour of the depth of all these together, oldest first; None if unknown of all."""
        ring = self.topics.fine
        per_point = ring.points // SPARKLINE_POINTS
        wanted = per_point * SPARKLINE_POINTS
        depth, is_known = np.zeros(wanted), np.zeros(wanted, bool)
        for table in self.tables:
            if slots := [table.slots[key] for key in keys if key in table.slots]:
                known = table.depths(slots, wanted)
                is_there = ~np.isnan(known)
                first = wanted - len(known)
                depth[first:] += np.where(is_there, known, 0.0).sum(axis=1)
                is_known[first:] |= is_there.any(axis=1)
        number = is_known.reshape(SPARKLINE_POINTS, per_point).sum(axis=1)
        total = depth.reshape(SPARKLINE_POINTS, per_point).sum(axis=1)
        means = (total / np.maximum(number, 1)).tolist()
        return [mean if count else None for mean, count in zip(means, number.tolist(), strict=True)]

    # The file

    async def start(self) -> None:
        """Read --history-file, and begin to save it from time to time."""
        path = self._options.history_file
        if not path:
            return
        if not await asyncio.to_thread(is_ours, path):
            log.warning("charts: --history-file %s is something else, and left as it is", path)
            return
        try:
            memory_max = self._options.history_memory
            stored, marks = await asyncio.to_thread(load, path, self.tables, memory_max)
            await self._adopt(stored)
            self.marks.extend(marks)
        except FileNotFoundError:
            pass
        except HistoryFileError as error:
            log.warning("charts: --history-file %s is ignored: %s", path, error)
        self._saver.start()

    async def save(self) -> None:
        """Save to --history-file, in a thread; an error is one line in the log."""
        path = self._options.history_file
        try:
            await asyncio.to_thread(save, snapshot(self.tables, self.marks), path)
        except OSError as error:
            log.warning("charts: --history-file %s could not be written: %s", path, error)


def known_or_none(value: float) -> float | None:
    """None for nan, which is what is not known."""
    return value if value == value else None  # noqa: PLR0124 - nan is not itself


NO_RATES = Rates(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
GAP = (UNKNOWN,) * len(NODE_COLUMNS)


def _topic_values(topics: Sums[str], is_up: Bools) -> Doubles:
    """[topics, TOPIC_COLUMNS]; unknown where no node that has it answers."""
    counts = topics.values
    in_s = np.where(topics.is_known, topics.rates[:, IN], UNKNOWN)
    values = np.column_stack([in_s, counts[:, DEPTH] - counts[:, BACKEND], counts[:, BACKEND]])
    values[~topics.is_on(is_up)] = UNKNOWN
    return values


async def _channel_values(
    channels: Sums[tuple[str, str]], is_up: Bools, slices: Slices
) -> tuple[Doubles, Doubles]:
    """[channels, CHANNEL_COLUMNS]; unknown where no node that has it answers. And the sums of the known ones."""
    values, is_on = np.empty((len(channels.names), len(CHANNEL_COLUMNS))), channels.is_on(is_up)
    sums = np.zeros(len(CHANNEL_COLUMNS))
    for begin in range(0, len(values), KEYS_AT_ONCE):
        block = slice(begin, begin + KEYS_AT_ONCE)
        counts, is_known = channels.values[block], channels.is_known[block]
        values[block, :RATES] = np.where(is_known[:, None], channels.rates[block], UNKNOWN)
        values[block, RATES] = counts[:, DEPTH] - counts[:, BACKEND]
        values[block, RATES + 1 :] = counts[:, [BACKEND, IN_FLIGHT, DEFERRED]]
        values[block][~is_on[block]] = UNKNOWN
        sums += np.nansum(values[block], axis=0)
        await slices.pause()
    return values, sums


def _slopes_of(sums: Sums[Any], table: HistoryTable, slopes: Doubles, is_lossy: Bools) -> Doubles:
    """Unknown while there is a fall that is a loss: nothing was finished."""
    found = np.append(slopes, UNKNOWN)[table.index]  # the last one is for slot -1
    if is_lossy.any():
        found[sums.is_on(is_lossy)] = UNKNOWN
    return found


def _node_row(node: Node) -> tuple[float, ...]:
    if node.state is not NodeState.UP:
        return GAP
    counts, rates = node.counts, msgspec.structs.astuple(node.rates or NO_RATES)
    depths = counts.memory_depth, counts.backend_depth
    held = counts.in_flight_count, counts.deferred_count
    memory = UNKNOWN if node.memory_bytes is None else node.memory_bytes
    return (*rates, *depths, *held, counts.client_count, memory)


def _cluster_row(
    nodes: Mapping[str, Node], totals: Totals, topics: Doubles, channels: Doubles
) -> tuple[float, ...]:
    """`topics` and `channels` are the sums of their columns."""
    if not totals.nodes_up:
        return GAP
    timeout_s = None if totals.out_s is None else channels[3]
    rates = totals.in_s, totals.out_s, totals.requeue_s, timeout_s
    up = [node for node in nodes.values() if node.state is NodeState.UP]
    memory = [node.memory_bytes for node in up if node.memory_bytes is not None]
    return (
        *(UNKNOWN if rate is None else rate for rate in rates),
        topics[1] + channels[4],
        topics[2] + channels[5],
        totals.in_flight_count,
        channels[7],
        sum(node.counts.client_count for node in up),
        sum(memory) if memory else UNKNOWN,
    )


PAST: Final = {
    "create": "Created",
    "delete": "Deleted",
    "empty": "Emptied",
    "pause": "Paused",
    "unpause": "Unpaused",
    "tombstone": "Tombstoned",
}


def mark_action(history: History, verb: str, topic: str, channel: str = "", node: str = "") -> None:
    """`verb` is one of PAST; `node` is of a tombstone."""
    key: tuple[str, ...] = ("channel", topic, channel) if channel else ("topic", topic)
    # A mark of the node would appear in the charts of all of its topics.
    where = f"on {node}" if node else f"{key[0]} {key[-1]}"
    history.mark(f"{PAST[verb]} {where}", key)
