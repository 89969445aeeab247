"""Histories made by hand, for what reads them: charts, sparklines, exports."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.history import known_or_none
from nsqfast.nsqadmin.cluster.history_tables import Mark
from nsqfast.nsqadmin.cluster.model import COUNTS, RATES, VALUES, Cluster, Rates, Rows
from nsqfast.nsqadmin.cluster.sums import Sums

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from nsqfast.nsqadmin.cluster.history import History
    from nsqfast.nsqadmin.cluster.model import Channel, Topic

POINTS = 360
STEP_S = 10.0
GAP = range(150, 180)  # points of which nothing is known


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of one that only pauses, without a loop."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value


def sum_queues(cluster: Cluster, queues: Sequence[Topic | Channel], names: Sequence[Any]) -> Sums:
    """As a tick has them before its topics and channels are made."""
    nodes = list(cluster.nodes)
    parts = [part for queue in queues for part in queue.parts]
    values = np.zeros((len(parts), VALUES), np.int64)
    for row, part in enumerate(parts):
        told = part.paused, part.oldest_ms, part.held_ms, part.is_failing
        told += part.is_refusing, part.has_dead_letters
        numbers = *structs.astuple(part.counts), *told
        values[row] = numbers
    every = np.arange(len(parts))
    on = np.array([nodes.index(part.node) for part in parts], np.int64)
    rows = Rows(nodes, every, on, values, np.full((len(parts), RATES), np.nan))
    begins = np.cumsum([0, *(len(queue.parts) for queue in queues)])
    summed = [[*structs.astuple(queue.counts), *[0] * (VALUES - COUNTS)] for queue in queues]
    rates = [structs.astuple(queue.rates or Rates(0.0)) for queue in queues]
    return Sums(
        names,
        rows,
        begins,
        np.array(summed, np.int64).reshape(len(queues), VALUES),
        np.array(rates, np.float64).reshape(len(queues), RATES),
        np.array([queue.rates is not None for queue in queues], bool),
    )


def take(history: History, cluster: Cluster) -> Cluster:
    """Give it to history; the same cluster with what history says of it."""
    topics = [topic for topic in cluster.topics.values() if topic.parts]
    channels = [channel for topic in topics for channel in topic.channels.values()]
    trends = finish(
        history.take(
            cluster.at,
            cluster.nodes,
            cluster.totals,
            sum_queues(cluster, topics, [topic.name for topic in topics]),
            sum_queues(cluster, channels, [(one.topic, one.name) for one in channels]),
            Slices(),
        )
    )
    columns = [array.tolist() for array in trends[1:]]
    made: dict[str, dict[str, Channel]] = {topic.name: {} for topic in topics}
    for one, slope, oldest_s, is_minimum, is_estimate in zip(channels, *columns, strict=True):
        made[one.topic][one.name] = structs.replace(
            one,
            depth_slope=known_or_none(slope),
            oldest_s=known_or_none(oldest_s),
            oldest_is_minimum=is_minimum,
            oldest_is_estimate=is_estimate,
        )
    known = {
        topic.name: structs.replace(
            topic, channels=made[topic.name], depth_slope=known_or_none(slope)
        )
        for topic, slope in zip(topics, trends.topic_slopes.tolist(), strict=True)
    }
    return replace(cluster, topics={**cluster.topics, **known})


def change_counts(
    cluster: Cluster, topic: str, channel: str, tick: int, at: float, **counts: int
) -> Cluster:
    """A later tick, at which this channel has other numbers."""
    found = cluster.topics[topic]
    old = found.channels[channel]
    new = structs.replace(old, counts=structs.replace(old.counts, **counts))
    changed = structs.replace(found, channels={**found.channels, channel: new})
    return replace(cluster, tick=tick, at=at, topics={**cluster.topics, topic: changed})


def scale(queue: Topic | Channel, wave: float) -> Any:
    """The same with other numbers."""
    depth = int(queue.counts.depth * wave)
    backend_depth = min(queue.counts.backend_depth, depth)
    counts = structs.replace(queue.counts, depth=depth, backend_depth=backend_depth)
    rates = queue.rates and Rates(queue.rates.in_s * wave, queue.rates.out_s * (2 - wave))
    return structs.replace(queue, counts=counts, rates=rates)


def earlier_ticks(cluster: Cluster) -> Iterator[Cluster]:
    """The hour before it: numbers that go up and down and end as they are now, and nothing within GAP."""
    for index in range(POINTS):
        if index in GAP:
            continue
        wave = 1 - 0.5 * math.sin((POINTS - 1 - index) / 40)
        topics = {
            name: structs.replace(
                scale(topic, wave),
                channels={each: scale(one, wave) for each, one in topic.channels.items()},
            )
            for name, topic in cluster.topics.items()
        }
        yield replace(cluster, at=cluster.at - (POINTS - 1 - index) * STEP_S, topics=topics)


def fill_history(history: History, cluster: Cluster) -> None:
    """So that each chart has a line, a gap and a mark."""
    for tick in earlier_ticks(cluster):
        take(history, tick)
    paused = Mark(cluster.at - 600, "pause orders/archive", ("channel", "orders", "archive"))
    history.marks.append(paused)
