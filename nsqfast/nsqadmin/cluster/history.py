"""Past numbers of topics, channels and nodes for charts, in rings of fixed size.

A fine ring has the last hour, a coarse one all of --history; their steps are the smallest for which everything fits
into --history-memory.
"""

import asyncio
import collections
import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np

from nsqfast.nsqadmin.cluster.history_file import HistoryFileError, is_ours, load, save, snapshot
from nsqfast.nsqadmin.cluster.history_tables import (
    BLOCK,
    CHANNEL_COLUMNS,
    NODE_COLUMNS,
    SLOPE_S,
    TOPIC_COLUMNS,
    Doubles,
    Key,
    Mark,
    Series,
    StoredTable,
    Table,
    oldest,
    slopes,
)
from nsqfast.nsqadmin.cluster.model import (
    Channel,
    Cluster,
    Node,
    NodeState,
    Rates,
    Topic,
    node_keys,
    oldest_ms,
)
from nsqfast.nsqadmin.options import Options

log = logging.getLogger("nsqadmin")

FINE_RANGE_S = 3600
STEPS_S = ((10, 60), (10, 120), (20, 120), (20, 300), (30, 300), (60, 300), (60, 600))
MARKS_MAX = 1000
SPARKLINE_POINTS = 30
SAVE_INTERVAL_S = 300.0
UNKNOWN = float("nan")
SLICE = 256  # entities between two reads of the clock

T = TypeVar("T")


class History:
    """Takes each tick; see `series` for the output."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._history_s = max(options.history_ns // 1_000_000_000, FINE_RANGE_S)
        self.topics = Table(TOPIC_COLUMNS, has_counts=False)
        self.channels = Table(CHANNEL_COLUMNS, has_counts=True)
        self.nodes = Table(NODE_COLUMNS, has_counts=False)
        self.marks: collections.deque[Mark] = collections.deque(maxlen=MARKS_MAX)
        self._plan = -1  # index of STEPS_S
        self._is_full = False
        self._start_times: dict[str, int] = {}
        # Nodes that lost messages, until (Unix time) the slopes have forgotten it.
        self._lossy: dict[str, float] = {}
        self._names: list[list[str]] = []  # of the last tick
        self._keys: list[list[Key]] = []
        self._topic_slopes: Doubles = np.zeros(0)
        self._channel_slopes: Doubles = np.zeros(0)
        self._saver: asyncio.Task[None] | None = None
        self._use_plan(0)

    @property
    def tables(self) -> tuple[Table, Table, Table]:
        """The tables of all kinds."""
        return self.topics, self.channels, self.nodes

    @property
    def size_bytes(self) -> int:
        """Size of all rings."""
        return sum(table.fine.size_bytes + table.coarse.size_bytes for table in self.tables)

    # Input: ticks

    def take(self, cluster: Cluster) -> None:
        """Take one more tick; fills in the slopes and the oldest ages of its topics and channels."""
        for _ in self.take_in_slices(cluster):
            pass

    def take_in_slices(self, cluster: Cluster) -> Iterator[None]:
        """Like `take`; whenever it yields, others may run."""
        now, up = cluster.at, _up(cluster)
        self._find_restarts(cluster)
        self._find_losses(cluster)
        topics = [topic for topic in cluster.topics.values() if topic.parts]
        yield
        channels = [channel for topic in topics for channel in topic.channels.values()]
        yield
        self._name(topics, channels, cluster)
        topic_keys, channel_keys, node_keys = self._keys
        topic_values = yield from _rows(topics, lambda one: _topic_row(one, up), TOPIC_COLUMNS)
        channel_values = yield from _rows(
            channels, lambda one: _channel_row(one, up), CHANNEL_COLUMNS
        )
        node_values = yield from _rows(list(cluster.nodes.values()), _node_row, NODE_COLUMNS)
        total = _cluster_row(cluster, topic_values, channel_values)
        node_values = np.concatenate([np.array([total]), node_values])
        counts = np.array([channel.counts.message_count for channel in channels], np.float64)
        yield
        self._make_room(self._keys, now)
        step = self.channels.fine.last
        self.topics.take(topic_keys, topic_values, None, now)
        yield
        self.channels.take(channel_keys, channel_values, counts, now)
        yield
        self.nodes.take(node_keys, node_values, None, now)
        is_grown = len(self._channel_slopes) != self.channels.capacity
        is_grown = is_grown or len(self._topic_slopes) != self.topics.capacity
        if step != self.channels.fine.last or is_grown:
            self._topic_slopes = slopes(self.topics.fine, 1, 2)
            self._channel_slopes = slopes(self.channels.fine, 4, 5)
        yield
        yield from self._tell(topics, channels, now)

    def _name(self, topics: list[Topic], channels: list[Channel], cluster: Cluster) -> None:
        """Their keys, rebuilt only if they differ from the last tick's, because there may be thousands."""
        names = [
            [topic.name for topic in topics],
            [channel.topic for channel in channels],
            [channel.name for channel in channels],
            list(cluster.nodes),
        ]
        if names != self._names:
            self._names = names
            self._keys = [
                [("topic", topic) for topic in names[0]],
                [("channel", *pair) for pair in zip(names[1], names[2], strict=True)],
                [(), *(("node", key) for key in names[3])],
            ]

    def _tell(self, topics: list[Topic], channels: list[Channel], now: float) -> Iterator[None]:
        known = [*self._topic_slopes.tolist(), None]  # the last one is for slot -1
        for topic, slot in zip(topics, self.topics.index.tolist(), strict=True):
            topic.depth_slope = self._slope_of(topic, known[slot])
        yield
        table = self.channels
        known = [*self._channel_slopes.tolist(), None]
        index = table.index.tolist()
        for begin in range(0, len(channels), SLICE):
            waiting = []
            for channel, slot in zip(
                channels[begin : begin + SLICE], index[begin : begin + SLICE], strict=True
            ):
                channel.depth_slope = self._slope_of(channel, known[slot])
                if slot >= 0 and channel.counts.depth > 0:
                    waiting.append((channel, slot))
            self._tell_ages(waiting, now)
            yield

    def _slope_of(self, queue: Topic | Channel, slope: float | None) -> float | None:
        """Unknown while it has a fall that is a loss: nothing was finished."""
        if self._lossy and not self._lossy.keys().isdisjoint(node_keys(queue.parts)):
            return None
        return _known(slope)

    def _tell_ages(self, waiting: list[tuple[Channel, int]], now: float) -> None:
        if not waiting:
            return
        table = self.channels
        slots = np.array([slot for _, slot in waiting])
        depth = np.array([channel.counts.depth for channel, _ in waiting], np.float64)
        found = oldest([table.fine, table.coarse], slots, depth, table.totals[slots], now)
        ages, is_minimum = found[0].tolist(), found[1].tolist()
        for (channel, _), age, at_least in zip(waiting, ages, is_minimum, strict=True):
            if reported_ms := oldest_ms(channel.parts):
                channel.oldest_s, channel.oldest_is_estimate = reported_ms / 1e3, False
            else:
                channel.oldest_s, channel.oldest_is_minimum = age, at_least

    def _find_losses(self, cluster: Cluster) -> None:
        for key, node in cluster.nodes.items():
            if node.unclean_start is not None and node.unclean_start.messages != 0:
                self._lossy[key] = min(node.start_time, cluster.at) + SLOPE_S
        self._lossy = {key: end for key, end in self._lossy.items() if end > cluster.at}

    def _find_restarts(self, cluster: Cluster) -> None:
        for key, node in cluster.nodes.items():
            before = self._start_times.get(key)
            if before and node.start_time and node.start_time != before:
                self.mark(f"nsqd {node.hostname} ({key}) restarted", ("node", key))
        self._start_times = {key: node.start_time for key, node in cluster.nodes.items()}

    # Memory

    def _make_room(self, keys: list[list[Key]], now: float) -> None:
        missing = [
            table.missing(wanted, now) for table, wanted in zip(self.tables, keys, strict=True)
        ]
        if not any(missing):
            return
        blocks = [-(-number // BLOCK) for number in missing]
        while self._bytes(self._plan, blocks) > self.memory_max:
            if self._plan + 1 == len(STEPS_S):
                if not self._is_full:
                    log.warning("charts: --history-memory is too small for all topics and channels")
                    self._is_full = True
                return
            self._use_plan(self._plan + 1)
        for table, number in zip(self.tables, blocks, strict=True):
            if number:
                table.grow(number)

    def _bytes(self, plan: int, blocks: list[int]) -> int:
        fine_s, coarse_s = STEPS_S[plan]
        steps = FINE_RANGE_S // fine_s + self._history_s // coarse_s
        return sum(
            (table.capacity + number * BLOCK)
            * Table.bytes_of(len(table.columns), steps, has_counts=table.has_counts)
            for table, number in zip(self.tables, blocks, strict=True)
        )

    def _use_plan(self, plan: int) -> None:
        self._plan = plan
        fine_s, coarse_s = STEPS_S[plan]
        for table in self.tables:
            table.set_steps(fine_s, FINE_RANGE_S // fine_s, coarse_s, self._history_s // coarse_s)

    @property
    def memory_max(self) -> int:
        """--history-memory."""
        return self._options.history_memory

    def adopt(self, stored: list[StoredTable]) -> None:
        """Take over a file's content, before the first tick."""
        for table, part in zip(self.tables, stored, strict=True):
            table.adopt(part, time.time())
        plan = 0
        while self._bytes(plan, [0, 0, 0]) > self.memory_max and plan + 1 < len(STEPS_S):
            plan += 1
        self._use_plan(plan)

    # Output

    def mark(self, text: str, key: Key = ()) -> None:
        """Note an event at the current time."""
        self.marks.append(Mark(time.time(), text, key))

    def _table(self, key: Key) -> Table:
        kind = key[0] if key else "node"
        return {"topic": self.topics, "channel": self.channels, "node": self.nodes}[kind]

    def series(self, key: Key, range_s: int) -> Series:
        """The last `range_s` seconds of one entity; nothing for an unknown one."""
        table = self._table(key)
        ring = table.fine if range_s <= FINE_RANGE_S else table.coarse
        slot = table.slots.get(key)
        last_at = table.last_at()
        if slot is None:
            nothing = np.zeros(0, np.float32)
            return Series(ring.step_s, np.zeros(0), dict.fromkeys(table.columns, nothing))
        count = min(range_s // ring.step_s, ring.length)
        values = np.concatenate([ring.read(slot, count), table.pending()[slot : slot + 1]])
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

    def slope(self, key: Key) -> float | None:
        """Messages per second by which the depth of a topic or channel grew over the last five minutes."""
        table = self._table(key)
        known = self._topic_slopes if table is self.topics else self._channel_slopes
        slot = table.slots.get(key)
        if table is self.nodes or slot is None or slot >= len(known):
            return None
        return _known(float(known[slot]))

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
            await asyncio.to_thread(self._load, path)
        except FileNotFoundError:
            pass
        except HistoryFileError as error:
            log.warning("charts: --history-file %s is ignored: %s", path, error)
        self._saver = asyncio.get_running_loop().create_task(self._save_often())

    def _load(self, path: str) -> None:
        stored, marks = load(path, self.tables, self.memory_max)
        self.adopt(stored)
        self.marks.extend(marks)

    async def stop(self) -> None:
        """Save for the last time."""
        if self._saver is not None:
            self._saver.cancel()
            await asyncio.wait([self._saver])
            self._saver = None
            await self.save()

    async def save(self) -> None:
        """Save to --history-file, in a thread; an error is one line in the log."""
        path = self._options.history_file
        try:
            await asyncio.to_thread(save, snapshot(self.tables, self.marks), path)
        except OSError as error:
            log.warning("charts: --history-file %s could not be written: %s", path, error)

    async def _save_often(self) -> None:
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            await self.save()


def _up(cluster: Cluster) -> frozenset[str] | None:
    """Nodes that are up; None for all of them."""
    up = frozenset(key for key, node in cluster.nodes.items() if node.state is NodeState.UP)
    return None if len(up) == len(cluster.nodes) else up


def _rows(
    entities: Sequence[T], row: Callable[[T], tuple[float, ...]], columns: tuple[str, ...]
) -> Generator[None, None, Doubles]:
    values = np.empty((len(entities), len(columns)))
    for begin in range(0, len(entities), SLICE):
        part = entities[begin : begin + SLICE]
        values[begin : begin + len(part)] = [row(one) for one in part]
        yield
    return values


def _known(value: float | None) -> float | None:
    return value if value is not None and value == value else None  # noqa: PLR0124 - nan is not itself


NO_RATES = Rates(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
GAP = (UNKNOWN,) * len(NODE_COLUMNS)


def _topic_row(topic: Topic, up: frozenset[str] | None) -> tuple[float, ...]:
    if up is not None and up.isdisjoint(node_keys(topic.parts)):
        return GAP[: len(TOPIC_COLUMNS)]
    counts, rates = topic.counts, topic.rates or NO_RATES
    return rates.in_s, counts.depth - counts.backend_depth, counts.backend_depth


def _channel_row(channel: Channel, up: frozenset[str] | None) -> tuple[float, ...]:
    if up is not None and up.isdisjoint(node_keys(channel.parts)):
        return GAP[: len(CHANNEL_COLUMNS)]
    counts, rates = channel.counts, channel.rates or NO_RATES
    return (
        rates.in_s,
        rates.out_s,
        rates.requeue_s,
        rates.timeout_s,
        counts.depth - counts.backend_depth,
        counts.backend_depth,
        counts.in_flight_count,
        counts.deferred_count,
    )


def _node_row(node: Node) -> tuple[float, ...]:
    if node.state is not NodeState.UP:
        return GAP
    counts, rates = node.counts, node.rates or NO_RATES
    memory = UNKNOWN if node.memory_bytes is None else node.memory_bytes
    return (
        rates.in_s,
        rates.out_s,
        rates.requeue_s,
        rates.timeout_s,
        counts.depth - counts.backend_depth,
        counts.backend_depth,
        counts.in_flight_count,
        counts.deferred_count,
        counts.client_count,
        memory,
    )


def _cluster_row(cluster: Cluster, topics: Doubles, channels: Doubles) -> tuple[float, ...]:
    if not cluster.totals.nodes_up:
        return GAP
    totals = cluster.totals
    timeouts = channels[:, 3]
    nodes = [node for node in cluster.nodes.values() if node.state is NodeState.UP]
    memory = [node.memory_bytes for node in nodes if node.memory_bytes is not None]
    return (
        UNKNOWN if totals.in_s is None else totals.in_s,
        UNKNOWN if totals.out_s is None else totals.out_s,
        UNKNOWN if totals.requeue_s is None else totals.requeue_s,
        UNKNOWN if totals.out_s is None else float(np.nansum(timeouts)),
        float(np.nansum(topics[:, 1]) + np.nansum(channels[:, 4])),
        float(np.nansum(topics[:, 2]) + np.nansum(channels[:, 5])),
        float(totals.in_flight_count),
        float(np.nansum(channels[:, 7])),
        float(sum(node.counts.client_count for node in nodes)),
        float(sum(memory)) if memory else UNKNOWN,
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
    if node:
        # A mark of the node would appear in the charts of all of its topics.
        history.mark(f"{PAST[verb]} on {node}", key)
    else:
        history.mark(f"{PAST[verb]} {key[0]} {key[-1]}", key)
