"""From the counters of two samples to messages per second.

Each nsqd counts by itself, from the first sample in which it is seen. One that was restarted, and a channel that was
deleted and made again, begin anew: there is no rate in that sample, instead of a negative or an absurd one. One that
did not answer for a while is divided by all the time since it last did.
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
    egress: float | None  # negative when more came back than was consumed, as Go's


@dataclass(slots=True)
class _Change:
    """Between two samples, over all nsqd with the same time between theirs."""

    messages: int = 0
    depth: int = 0


class History:
    """Samples are numbered; between one and the next are `interval_ns`."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._before: dict[str, tuple[int, NodeStats]] = {}

    def add(self, number: int, answers: Mapping[str, NodeStats]) -> dict[Key, Row]:
        """The next sample, by nsqd; what there is to say of each channel."""
        sums: dict[Key, Counters] = {}
        changes: dict[Key, dict[int, _Change]] = {}  # the inner one by how many intervals
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
            # As Go has it: the sum first, then one division.
            seconds = _seconds(count * self._interval_ns)
            ingress += change.messages / seconds
            egress += (change.messages - change.depth) / seconds
        return Row(counters, ingress, egress)


def _seconds(duration_ns: int) -> float:
    """As Go's Duration.Seconds rounds."""
    whole, rest = divmod(duration_ns, NS_PER_S)
    return whole + rest / NS_PER_S
