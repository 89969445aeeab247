"""What a broker can have many of, and for each how to add more. All stop by themselves at the deadline."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from growth.wire import Crowd, Line, Web, dpub, mpub, pub
from server.idle import NO_HEARTBEATS
from server.idle import Crowd as IdleCrowd

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from server.broker import Broker

    # Arguments: a broker, the number of the first, how many, what keeps them open, when to stop. Returns how many were
    # made.
    Add = Callable[[Broker, int, int, ExitStack, float], int]

TOPIC = "grown"
BODY = bytes(200)
BATCH = 500
HOUR_MS = 3_600_000
READY_MAX = 100_000  # of one consumer; messages in flight beyond it need another
POLL_SECONDS = 0.02
MEMORY = ("--mem-queue-size=20000000",)
DISK = ("--mem-queue-size=0",)


@dataclass(frozen=True, slots=True)
class Subject:
    """One dimension. `small` is for CI; a broker with the smallest number tells what one costs."""

    name: str
    add: Add
    small: tuple[int, ...]
    full: tuple[int, ...]
    flags: tuple[str, ...] = ()
    prepare: Callable[[Broker], None] | None = None


def add_topics(broker: Broker, first: int, count: int, _: ExitStack, deadline_s: float) -> int:
    """Create each by its first message."""
    with Line(broker.tcp) as line:
        return line.ask_all(
            (pub(f"t{number:06}", b"x") for number in range(first, first + count)), deadline_s
        )


def add_channels(broker: Broker, first: int, count: int, _: ExitStack, deadline_s: float) -> int:
    """Create all in one topic."""
    with Web(broker.http) as web:
        for number in range(first, first + count):
            web.post(f"/channel/create?topic={TOPIC}&channel=c{number:06}")
            if time.monotonic() > deadline_s:
                return number - first + 1
    return count


def add_connections(
    broker: Broker, _: int, count: int, stack: ExitStack, _deadline_s: float
) -> int:
    """Connect clients that have sent IDENTIFY."""
    stack.enter_context(IdleCrowd(broker.tcp, count, NO_HEARTBEATS))
    return count


def add_consumers(broker: Broker, _: int, count: int, stack: ExitStack, _deadline_s: float) -> int:
    """Subscribe all to one channel, ready."""
    before = channel(broker)["client_count"]
    stack.enter_context(Crowd(broker, TOPIC, count, 1))
    broker.wait_for(TOPIC, lambda found: found["channels"][0]["client_count"] == before + count)
    return count


def add_backlog(
    broker: Broker, _: int, count: int, __: ExitStack, deadline_s: float, topic: str = TOPIC
) -> int:
    """Publish messages that wait for a consumer."""
    batch = min(BATCH, count)
    whole, rest = divmod(count, batch)
    commands = [mpub(topic, BODY, batch)] * whole + [mpub(topic, BODY, rest)] * bool(rest)
    with Line(broker.tcp) as line:
        done = line.ask_all(commands, deadline_s, in_air=4)
    return min(count, done * batch)


def add_deferred(broker: Broker, _: int, count: int, __: ExitStack, deadline_s: float) -> int:
    """Publish messages that are due in an hour."""
    with Line(broker.tcp) as line:
        return line.ask_all((dpub(TOPIC, HOUR_MS, BODY) for _ in range(count)), deadline_s)


def add_in_flight(
    broker: Broker, first: int, count: int, stack: ExitStack, deadline_s: float
) -> int:
    """Deliver messages that consumers do not answer."""
    made = add_backlog(broker, first, count, stack, deadline_s)
    consumers = -(-made // READY_MAX)
    before = channel(broker)["in_flight_count"]
    stack.enter_context(Crowd(broker, TOPIC, consumers, -(-made // consumers)))
    while channel(broker)["in_flight_count"] < before + made and time.monotonic() < deadline_s:
        time.sleep(POLL_SECONDS)
    return made


def channel(broker: Broker) -> dict[str, Any]:
    """Return the counters of the only channel."""
    found: dict[str, Any] = broker.stats(TOPIC)["channels"][0]
    return found


def with_channel(broker: Broker) -> None:
    broker.create(TOPIC, ("ch",))


def with_topic(broker: Broker) -> None:
    broker.create(TOPIC, ())


SMALL = (100,)
SUBJECTS = (
    Subject("topics", add_topics, SMALL, (10, 1000, 10_000, 100_000)),
    Subject("channels of a topic", add_channels, SMALL, (10, 1000, 10_000), prepare=with_topic),
    Subject("queues on disk", add_topics, SMALL, (10, 1000, 9500), DISK),
    Subject("idle connections", add_connections, SMALL, (10, 1000, 10_000)),
    Subject(
        "consumers of a channel", add_consumers, SMALL, (10, 1000, 10_000), prepare=with_channel
    ),
    Subject(
        "messages in flight",
        add_in_flight,
        (1000,),
        (1000, 10_000, 100_000, 1_000_000),
        (*MEMORY, "--max-rdy-count=1000000", "--msg-timeout=15m"),
        with_channel,
    ),
    Subject(
        "deferred messages",
        add_deferred,
        (1000,),
        (1000, 10_000, 100_000, 1_000_000),
        MEMORY,
        with_channel,
    ),
    Subject(
        "messages of a backlog in memory",
        add_backlog,
        (10_000,),
        (10_000, 100_000, 1_000_000, 10_000_000),
        MEMORY,
        with_channel,
    ),
    Subject(
        "messages of a backlog on disk",
        add_backlog,
        (10_000,),
        (10_000, 100_000, 1_000_000, 10_000_000),
        DISK,
        with_channel,
    ),
)
