"""--status-every: how long the last requests took, logged as Go's tools do."""

import math
from collections import deque

from nsqfast.tools.shared.program import log

COUNT_FOR_PERCENTILES = 100


class Timings:
    """Logs a line after every `every` requests, beginning with the one after the first `every`; 0 = never."""

    def __init__(self, name: str, every: int) -> None:
        self._name = name
        self._every = max(0, every)
        self._runs: deque[tuple[float, int]] = (
            deque()
        )  # of the last `every`: runs of requests with the same time
        self._count = 0  # total of these runs
        self._until_line = self._every + 1
        if 0 < self._every < COUNT_FOR_PERCENTILES:
            log.info(
                "Warning: use more than 100 status values for accurate percentiles (configured with %d)",
                self._every,
            )

    def add(self, took_s: float, count: int = 1) -> None:
        """Add this many requests that were answered together."""
        if not self._every:
            return
        while count >= self._until_line:
            self._keep(took_s, self._until_line)
            count -= self._until_line
            self._until_line = self._every
            self._say()
        self._keep(took_s, count)
        self._until_line -= count

    def _keep(self, took_s: float, count: int) -> None:
        if not count:
            return
        self._runs.append((took_s, count))
        self._count += count
        while (over := self._count - self._every) > 0:
            oldest_s, oldest_count = self._runs.popleft()
            gone = min(over, oldest_count)
            self._count -= gone
            if oldest_count > gone:
                self._runs.appendleft((oldest_s, oldest_count - gone))

    def _say(self) -> None:
        ordered = sorted(self._runs)
        average_s = sum(took_s * count for took_s, count in ordered) / self._count
        log.info(
            "%s finished %d - 99th: %.2fms - 95th: %.2fms - avg: %.2fms",
            self._name,
            self._count,
            _percentile(ordered, self._count, 0.99) * 1000,
            _percentile(ordered, self._count, 0.95) * 1000,
            average_s * 1000,
        )


def _percentile(ordered: list[tuple[float, int]], count: int, part: float) -> float:
    """With the rank that Go's tools use: half a step above the plain one."""
    rank = min(math.ceil(part * count + 0.5), count - 1)
    for took_s, many in ordered:
        if rank < many:
            return took_s
        rank -= many
    return ordered[-1][0]
