"""The channels of an nsqd at one moment, from its /stats, and the sums over several nsqd."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsqfast.errors import ConnectError

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
