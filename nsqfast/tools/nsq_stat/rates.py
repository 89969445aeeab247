"""From the counters of two samples to messages per second.

Each nsqd counts by itself, from the first sample in which it is seen. One that was restarted, and a channel that was
deleted and made again, begin anew: that sample has no rate for them, instead of a negative or an absurd one. After an
outage, the growth of an nsqd is divided by the whole time since its last answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nsqfast.tools.nsq_stat.counters import NONE, Counters, Key, NodeStats, add

NS_PER_S = 1_000_000_000


class Row(NamedTuple):
    """A channel, over all nsqd that answered. Rates in messages per second; None = not known yet."""

    counters: Counters
    ingress: float | None
    egress: float | None  # negative when more came back than was consumed, as in Go


@dataclass(slots=True)
class _Change:
    """Growth between two samples, over all nsqd whose samples are equally far apart."""

    messages: int = 0
    depth: int = 0


class History:
    """Samples are numbered, `interval_ns` apart."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._before: dict[str, tuple[int, NodeStats]] = {}

    def add(self, number: int, answers: Mapping[str, NodeStats]) -> dict[Key, Row]:
        """Add the next sample, by nsqd; returns a row for each channel."""
        sums: dict[Key, Counters] = {}
        changes: dict[Key, dict[int, _Change]] = {}  # the inner key is the number of intervals
        for node, now in answers.items():
            for key, counters in now.counters.items():
                known = sums.get(key)
                sums[key] = counters if known is None else add(known, counters)
            self._compare(node, number, now, changes)
            self._before[node] = number, now
        return {key: self._row(sums[key], changes.get(key)) for key in sums}

    def _compare(
        self, node: str, number: int, now: NodeStats, changes: dict[Key, dict[int, _Change]]
    ) -> None:
        number_before, before = self._before.get(node, (number, now))
        if number_before == number or before.start_time != now.start_time:
            return
        for key, counters in now.counters.items():
            earlier = before.counters.get(key, NONE)
            if counters.messages < earlier.messages:
                continue
            change = changes.setdefault(key, {}).setdefault(number - number_before, _Change())
            change.messages += counters.messages - earlier.messages
            change.depth += counters.depth - earlier.depth

    def _row(self, counters: Counters, changes: dict[int, _Change] | None) -> Row:
        if not changes:
            return Row(counters, None, None)
        ingress = egress = 0.0
        for count, change in changes.items():
            # As in Go: add first, then divide once.
            seconds = _seconds(count * self._interval_ns)
            ingress += change.messages / seconds
            egress += (change.messages - change.depth) / seconds
        return Row(counters, ingress, egress)


def _seconds(duration_ns: int) -> float:
    """Round as Go's Duration.Seconds does."""
    whole, rest = divmod(duration_ns, NS_PER_S)
    return whole + rest / NS_PER_S
