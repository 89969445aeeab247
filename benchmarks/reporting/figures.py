"""Medians, spreads and ratios: computed from samples.

A ratio compares two samples of the same round, nsqfast's and Go's or Redis's, and the median of these ratios is
reported: whatever else the machine did in that round affected both.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reporting.records import Row, Target

NSQFAST, GO, NULL, REDIS, DEVICE = "nsqfast", "go", "null", "redis", "device"


@dataclass(frozen=True, slots=True)
class Spread:
    """The figures of all rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target beside what was measured; `measured` is None if nothing was."""

    row: Row
    target: Target
    measured: float | None

    @property
    def is_met(self) -> bool | None:
        """None if nothing was measured."""
        if self.measured is None:
            return None
        match self.target.relation:
            case ">=":
                return self.measured >= self.target.value
            case "<=":
                return self.measured <= self.target.value
            case "<":
                return self.measured < self.target.value
        raise ValueError(f"no such relation: {self.target.relation}")

    @property
    def miss(self) -> float:
        """By how much the target is missed or exceeded, as a part of it: 0.2 for 8 instead of 10."""
        assert self.measured is not None
        return abs(self.measured - self.target.value) / self.target.value


def by_round(row: Row, implementation: str, metric: str) -> list[float | None]:
    """Return one entry per round."""
    return [
        None if sample is None else sample.get(metric)
        for sample in row.samples.get(implementation, [])
    ]


def spread(row: Row, implementation: str, metric: str) -> Spread | None:
    """Return it over the rounds that have a figure; None if none has."""
    values = [value for value in by_round(row, implementation, metric) if value is not None]
    return Spread(median(values), min(values), max(values)) if values else None


def ratio(row: Row, metric: str, other: str = GO) -> float | None:
    """Return nsqfast : the other, the median over the rounds that have both; None if none has."""
    # Rounds beyond those of the other have no partner, and a figure of 0 gives no ratio.
    pairs = zip(by_round(row, NSQFAST, metric), by_round(row, other, metric), strict=False)
    ratios = [ours / theirs for ours, theirs in pairs if ours is not None and theirs]
    return median(ratios) if ratios else None


def verdicts(row: Row) -> list[Verdict]:
    """Return one for each target of the row."""
    found = []
    for target in row.targets:
        if target.is_ratio:
            measured = ratio(row, target.metric)
        else:
            own = spread(row, NSQFAST, target.metric)
            measured = own.median if own else None
        found.append(Verdict(row, target, measured))
    return found
