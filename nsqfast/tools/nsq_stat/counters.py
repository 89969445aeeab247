"""What an nsqd says of its channels at one moment, out of its /stats, and the sums over several."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsqfast.errors import ConnectError

Key = tuple[str, str]  # topic and channel; '' = the topic itself


class Counters(NamedTuple):
    """Of a channel. Of a topic itself: what is not in its channels yet; only the depths and `messages` count there."""

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
        """What of the depth is not on disk."""
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
    """One nsqd. `start_time` (s since 1970) is another one after it was restarted."""

    start_time: int
    counters: dict[Key, Counters] = field(default_factory=dict)


def parse_stats(url: str, answer: dict[str, Any], topic: str, channel: str) -> NodeStats:
    """What it says of that channel; '' = of all. ConnectError: these are no stats of an nsqd."""
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
    # A topic has a line of its own when it holds something that no channel has got.
    if not channel and (not channels or _number(item, "depth")):
        found.counters[name, ""] = Counters(
            depth=_number(item, "depth"),
            backend_depth=_number(item, "backend_depth"),
            messages=_number(item, "message_count"),
        )


def _channel(item: dict[str, Any]) -> Counters:
    # An nsqd before 1.2 lists its clients and does not count them.
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
    """As in Go, what is missing is 0."""
    value = item.get(key, 0)
    if type(value) is not int:
        raise TypeError(f"{key} is {value!r}")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError(f"a name is {value!r}")
    return value
