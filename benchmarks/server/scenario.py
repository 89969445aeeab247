"""The name and the targets of a measurement, and how much of it is run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

# What an OK means in a row.
MEMORY = "memory"
PAGE_CACHE = "page cache"
FSYNC = "fsync before OK"
NOTHING = "–"

# The table that a row belongs to.
THROUGHPUT, SIZES, LATENCY, OTHER = "throughput", "sizes", "latency", "other"
DURABLE, DURABLE_LATENCY, DEVICE = "durable", "durable latency", "device"
GROWTH = "growth"  # in a report of its own


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to reach: for the ratio nsqfast : Go, or for nsqfast's own value."""

    metric: str
    relation: str  # ">=" or "<=" or "<"
    value: float
    is_ratio: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a scenario as one generator drives it."""

    scenario: str
    generator: str
    durability: str
    group: str = THROUGHPUT
    targets: tuple[Target, ...] = ()
    size: int = 0  # of a message, in rows that a chart draws over sizes; or how many there are
    redis_generator: str = ""  # in rows that Redis takes part in

    def as_json(self) -> dict[str, Any]:
        """Return it for pytest-benchmark's file."""
        return asdict(self)


def at_least(ratio: float) -> Target:
    """So many times Go's messages a second, or more."""
    return Target("rate", ">=", ratio)


def at_most(metric: str, value: float, relation: str = "<=") -> Target:
    """A limit for nsqfast alone."""
    return Target(metric, relation, value, is_ratio=False)


def cpu_at_most(ratio: float) -> Target:
    """At most that part of Go's CPU time per message."""
    return Target("broker_cpu_us", "<=", ratio)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run: as declared, or just enough to check that a scenario works."""

    rounds: int
    has_warm_up: bool
    divisor: int

    def count(self, messages: int, multiple: int = 1) -> int:
        """Return so many messages, or a part of them, in whole commands and at least one."""
        wanted = messages // self.divisor
        return max(1, wanted // multiple) * multiple

    def times(self, times: int) -> int:
        """Return how often a load is repeated within a round, or once."""
        return times if self.divisor == 1 else 1

    def seconds(self, seconds: float) -> float:
        """Return so long, or a part of it."""
        return max(0.1, seconds / self.divisor) if self.divisor > 1 else seconds


FULL = Scale(rounds=3, has_warm_up=True, divisor=1)
SMOKE = Scale(rounds=1, has_warm_up=False, divisor=50)
