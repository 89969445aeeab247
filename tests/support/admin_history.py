"""Histories made by hand, for what reads them: charts, sparklines, exports."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

from nsqfast.nsqadmin.cluster.history_tables import Mark
from nsqfast.nsqadmin.cluster.model import Cluster, Rates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nsqfast.nsqadmin.cluster.history import History
    from nsqfast.nsqadmin.cluster.model import Channel, Topic

POINTS = 360
STEP_S = 10.0
GAP = range(150, 180)  # points of which nothing is known


def list_numbered(cluster: Cluster) -> list[Topic | Channel]:
    """All topics, each before its channels."""
    return [each for topic in cluster.topics.values() for each in (topic, *topic.channels.values())]


def earlier_ticks(cluster: Cluster) -> Iterator[Cluster]:
    """The hour before it: numbers that go up and down and end as they are now, and nothing within GAP."""
    tick = copy.deepcopy(
        cluster
    )  # one for all: a copy of many topics takes as long as all the rest
    for index in range(POINTS):
        if index in GAP:
            continue
        tick.at = cluster.at - (POINTS - 1 - index) * STEP_S
        wave = 1 - 0.5 * math.sin((POINTS - 1 - index) / 40)
        for now, then in zip(list_numbered(cluster), list_numbered(tick), strict=True):
            then.counts.depth = int(now.counts.depth * wave)
            then.counts.backend_depth = min(now.counts.backend_depth, then.counts.depth)
            if now.rates is not None:
                then.rates = Rates(now.rates.in_s * wave, now.rates.out_s * (2 - wave))
        yield tick


def fill_history(history: History, cluster: Cluster) -> None:
    """So that each chart has a line, a gap and a mark."""
    for tick in earlier_ticks(cluster):
        history.take(tick)
    paused = Mark(cluster.at - 600, "pause orders/archive", ("channel", "orders", "archive"))
    history.marks.append(paused)
