"""When the deferred messages of a channel are due: how many in each step of time, of all nodes together."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

import msgspec

from nsqfast.nsqadmin.cluster.answers import Count, UpstreamError
from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.cluster.model import Node
from nsqfast.nsqadmin.messages.peek import NODES_AT_ONCE, read_node

DAY_S = 86400
# By the parameter `by`: seconds of a step, and steps.
SCALES = {"hours": (3600, 48), "minutes": (300, 24), "days": (DAY_S, 90)}
LABELS = {"minutes": "2 hours", "hours": "2 days", "days": "90 days"}


class NodeCalendar(msgspec.Struct):
    """GET /channel/deferred of one nsqd."""

    counts: list[Count] = msgspec.field(default_factory=list)
    later: Count = 0


@dataclass(frozen=True, slots=True)
class Step:
    begin: float  # Unix time
    count: int
    height: float  # its share of the largest, in percent


@dataclass(slots=True)
class Calendar:
    """`first` is when the first step begins, Unix time; what is overdue counts there, too."""

    by: str
    first: int
    counts: list[int] = field(default_factory=list)
    later: int = 0
    answer_count: int = 0
    node_count: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts) + self.later

    @property
    def end(self) -> int:
        step_s, count = SCALES[self.by]
        return self.first + step_s * count

    def steps(self) -> list[Step]:
        """All of them, also those with nothing."""
        most = max(self.counts, default=0) or 1
        step_s, _ = SCALES[self.by]
        return [
            Step(self.first + step_s * number, count, 100 * count / most)
            for number, count in enumerate(self.counts)
        ]


def first_step(by: str, now: float) -> int:
    """When the step of this moment began; a day is one of the server's."""
    if by == "days":
        day = time.localtime(now)
        return int(time.mktime((day.tm_year, day.tm_mon, day.tm_mday, 0, 0, 0, 0, 0, -1)))
    step_s, _ = SCALES[by]
    return int(now) // step_s * step_s


async def ask_calendar(
    upstream: Upstream, nodes: Sequence[Node], topic: str, channel: str, by: str
) -> Calendar:
    """Ask them; those that do not answer are missing in it."""
    calendar = Calendar(by, first_step(by, time.time()), node_count=len(nodes))
    step_s, count = SCALES[by]
    calendar.counts = [0] * count
    given = {"topic": topic, "channel": channel, "step": step_s, "count": count}
    target = "/channel/deferred?" + urlencode({**given, "first": calendar.first})
    slots = asyncio.Semaphore(NODES_AT_ONCE)

    async def ask(node: Node) -> None:
        async with slots:
            try:
                found = await read_node(upstream, node, target, NodeCalendar)
            except UpstreamError:
                return
        calendar.answer_count += 1
        calendar.later += found.later
        for number, due_count in enumerate(found.counts[:count]):
            calendar.counts[number] += due_count

    await asyncio.gather(*map(ask, nodes))
    return calendar
