"""What an nsqd says of its commit log at each poll, and what follows from two such answers."""

from dataclasses import dataclass
from math import inf

from nsqfast.nsqadmin.cluster.answers import CommitLogFigures

SPAN_S = 30.0  # that rates and quantiles look back, or up to twice as long


@dataclass(frozen=True, slots=True)
class CommitLog:
    """The last answer; means and quantiles of the last minute, or of its whole life if it has none of that."""

    figures: CommitLogFigures
    commits_s: float | None  # None: not known yet
    messages_per_commit: float | None  # this one and the next two: None without a commit
    median_ms: float | None  # upper bounds; infinite above the last bound
    most_ms: float | None  # of 99 %


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float  # monotonic
    figures: CommitLogFigures


class CommitLogWatch:
    """Of one nsqd."""

    def __init__(self) -> None:
        self._old: _Reading | None = None  # what the last one is compared with
        self._next_old: _Reading | None = None
        self._last: _Reading | None = None

    def note(self, figures: CommitLogFigures | None, at_s: float, *, is_same_life: bool) -> None:
        """None: it has none."""
        if figures is None or not is_same_life:
            self._old = self._next_old = None
        self._last = _Reading(at_s, figures) if figures is not None else None
        if self._next_old is None or at_s - self._next_old.at_s >= SPAN_S:
            self._old, self._next_old = self._next_old or self._last, self._last

    def view(self) -> CommitLog | None:
        if self._last is None or self._old is None:
            return None
        last, old = self._last.figures, self._old.figures
        elapsed_s = self._last.at_s - self._old.at_s
        commits = last.commit_count - old.commit_count
        rate = max(commits, 0) / elapsed_s if elapsed_s > 0 else None
        if commits <= 0:
            old, commits = CommitLogFigures(), last.commit_count
        return CommitLog(
            last,
            rate,
            max(last.message_count - old.message_count, 0) / commits if commits > 0 else None,
            _quantile_ms(last, old, 0.5),
            _quantile_ms(last, old, 0.99),
        )


def _quantile_ms(last: CommitLogFigures, old: CommitLogFigures, share: float) -> float | None:
    """The first bound that this share of the commits since `old` did not exceed."""
    before = dict(old.commit_times.within_ms)
    total = last.commit_times.count - old.commit_times.count
    if total <= 0:
        before, total = {}, last.commit_times.count
    if total <= 0:
        return None
    reached = (
        bound
        for bound, count in last.commit_times.within_ms
        if count - before.get(bound, 0) >= share * total
    )
    return next(reached, inf)
