"""Channels of an nsqd at one moment, sums over several nsqd, rates from two moments, and the columns of a report."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsqfast.errors import ConnectError

# The channels of an nsqd at one moment, from its /stats, and the sums over several nsqd.

Key = tuple[str, str]  # topic and channel; '' = the topic itself


class Counters(NamedTuple):
    """Of a channel. For a topic itself: messages not in its channels yet; only the depths and `messages` are set."""

    depth: int = 0
    backend_depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    requeued: int = 0
    timed_out: int = 0
    messages: int = 0
    clients: int = 0

    @property
    def memory_depth(self) -> int:
        """The part of the depth that is not on disk."""
        return self.depth - self.backend_depth


NONE = Counters()


def add(one: Counters, other: Counters) -> Counters:
    """The sum."""
    return Counters(*[a + b for a, b in zip(one, other, strict=True)])


def total(several: Iterable[Counters]) -> Counters:
    """The sum of all."""
    return Counters(*[sum(values) for values in zip(NONE, *several, strict=True)])


@dataclass(slots=True)
class NodeStats:
    """One nsqd. `start_time` (s since 1970) changes when it is restarted."""

    start_time: int
    counters: dict[Key, Counters] = field(default_factory=dict)


def parse_stats(url: str, answer: dict[str, Any], topic: str, channel: str) -> NodeStats:
    """Parse its figures for that channel; '' = for all. ConnectError: these are not the stats of an nsqd."""
    try:
        found = NodeStats(_number(answer, "start_time"))
        for item in answer["topics"] or ():
            name = _text(item["topic_name"])
            if topic in {"", name}:
                _read_topic(found, name, item, channel)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConnectError(f"{url}: not the stats of an nsqd: {error!r}") from None
    return found


def _read_topic(found: NodeStats, name: str, item: dict[str, Any], channel: str) -> None:
    channels = item["channels"] or ()
    for one in channels:
        if channel in {"", one["channel_name"]}:
            found.counters[name, _text(one["channel_name"])] = _channel(one)
    # A topic has its own line when it holds messages that no channel has.
    if not channel and (not channels or _number(item, "depth")):
        found.counters[name, ""] = Counters(
            depth=_number(item, "depth"),
            backend_depth=_number(item, "backend_depth"),
            messages=_number(item, "message_count"),
        )


def _channel(item: dict[str, Any]) -> Counters:
    # An nsqd before 1.2 lists its clients without counting them.
    clients = item.get("client_count", len(item.get("clients") or ()))
    return Counters(
        depth=_number(item, "depth"),
        backend_depth=_number(item, "backend_depth"),
        in_flight=_number(item, "in_flight_count"),
        deferred=_number(item, "deferred_count"),
        requeued=_number(item, "requeue_count"),
        timed_out=_number(item, "timeout_count"),
        messages=_number(item, "message_count"),
        clients=clients if type(clients) is int else 0,
    )


def _number(item: dict[str, Any], key: str) -> int:
    """As in Go, a missing number is 0."""
    value = item.get(key, 0)
    if type(value) is not int:
        raise TypeError(f"{key} is {value!r}")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError(f"a name is {value!r}")
    return value


# From the counters of two samples to messages per second.
#
# Each nsqd counts by itself, from the first sample in which it is seen. One that was restarted, and a channel that was
# deleted and made again, begin anew: that sample has no rate for them, instead of a negative or an absurd one. After an
# outage, the growth of an nsqd is divided by the whole time since its last answer.


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


# The columns of a report, with the names that Go's nsq_stat uses.


Value = Callable[[Key, Row], str | int]


def _rate(rate: float | None) -> int:
    """Truncated to whole messages, as in Go; an unknown rate counts as 0."""
    return 0 if rate is None else int(rate)


NAMES: dict[str, Value] = {
    "topic": lambda key, _: key[0],
    "channel": lambda key, _: key[1],
}
NUMBERS: dict[str, Callable[[Row], int]] = {
    "ingress": lambda row: _rate(row.ingress),
    "egress": lambda row: _rate(row.egress),
    "total": lambda row: row.counters.depth,
    "mem": lambda row: row.counters.memory_depth,
    "disk": lambda row: row.counters.backend_depth,
    "inflt": lambda row: row.counters.in_flight,
    "def": lambda row: row.counters.deferred,
    "req": lambda row: row.counters.requeued,
    "t-o": lambda row: row.counters.timed_out,
    "msgs": lambda row: row.counters.messages,
    "clients": lambda row: row.counters.clients,
}
COLUMNS = (*NAMES, *NUMBERS)


def sort_rows(rows: dict[Key, Row], column: str) -> list[tuple[Key, Row]]:
    """Sort names from A on, numbers from the largest on; equal ones by name."""
    by_name = sorted(rows.items())
    if column in NAMES:
        value = NAMES[column]
        return sorted(by_name, key=lambda item: value(*item))
    number = NUMBERS[column]
    return sorted(by_name, key=lambda item: number(item[1]), reverse=True)
