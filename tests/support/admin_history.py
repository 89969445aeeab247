"""Histories made by hand, for what reads them: charts, sparklines, exports."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

from nsqfast.nsqadmin.live.model import Cluster, Rates
from nsqfast.nsqadmin.live.series import Mark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nsqfast.nsqadmin.live.history import History

POINTS = 360
STEP_S = 10.0
GAP = range(150, 180)  # points of which nothing is known


def earlier_ticks(cluster: Cluster) -> Iterator[Cluster]:
    """The hour before it: numbers that go up and down and end as they are now, and nothing within GAP."""
    for index in range(POINTS):
        if index in GAP:
            continue
        tick = copy.deepcopy(cluster)
        tick.at = cluster.at - (POINTS - 1 - index) * STEP_S
        wave = 1 - 0.5 * math.sin((POINTS - 1 - index) / 40)
        for topic in tick.topics.values():
            for each in (topic, *topic.channels.values()):
                counts = each.counts
                counts.depth = int(counts.depth * wave)
                counts.backend_depth = min(counts.backend_depth, counts.depth)
                if each.rates is not None:
                    rates = each.rates
                    each.rates = Rates(rates.in_s * wave, rates.out_s * (2 - wave))
        yield tick


def fill_history(history: History, cluster: Cluster) -> None:
    """So that each chart has a line, a gap and a mark."""
    for tick in earlier_ticks(cluster):
        history.take(tick)
    paused = Mark(cluster.at - 600, "pause orders/archive", ("channel", "orders", "archive"))
    history.marks.append(paused)
