"""Activity of channels in the last few minutes: sums over a window that moves in steps of a tenth."""

from collections import deque
from typing import NamedTuple

STEPS = 10
# A window younger than this part of its span says nothing yet: a burst in a busy channel proves no share.
YOUNG = 1 / 5


class Sums(NamedTuple):
    """Over the window."""

    requeued: float
    timed_out: float
    delivered: float


class Window:
    """The window of one channel (or topic: then `delivered` counts its messages)."""

    __slots__ = ("_began_s", "_now_s", "_span_s", "_steps")

    def __init__(self, span_s: float, now_s: float) -> None:
        self._span_s = span_s
        self._began_s = self._now_s = now_s
        self._steps: deque[tuple[float, Sums]] = deque()

    def add(self, now_s: float, requeued: float, timed_out: float, delivered: float) -> None:
        """Add the activity since the last call."""
        self._now_s = now_s
        steps = self._steps
        if steps and now_s - steps[-1][0] < self._span_s / STEPS:
            began_s, old = steps[-1]
            steps[-1] = (
                began_s,
                Sums(old.requeued + requeued, old.timed_out + timed_out, old.delivered + delivered),
            )
        else:
            steps.append((now_s, Sums(requeued, timed_out, delivered)))
        while now_s - steps[0][0] > self._span_s:
            steps.popleft()

    def sums(self) -> Sums:
        """Over the last `span_s`."""
        columns = zip(*(step for _, step in self._steps), strict=True)
        return Sums(*map(sum, columns)) if self._steps else Sums(0.0, 0.0, 0.0)

    @property
    def age_s(self) -> float:
        """How long it has observed, at most its span."""
        return min(self._now_s - self._began_s, self._span_s)

    @property
    def is_young(self) -> bool:
        """Whether too little was observed."""
        return self.age_s < self._span_s * YOUNG
