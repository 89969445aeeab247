"""A broker that is being emptied, before it is taken away: POST /drain.

    refuses      PUB, MPUB and DPUB by E_PUB_FAILED and its kin, HTTP by 503: clients try another broker
    leaves       every nsqlookupd, so that consumers do not come any more; those that are connected go on
    says so      /ping is 503 `NOK - draining`, for load balancers; /stats, /info and /metrics
    stops        as SIGTERM does, when its consumers have finished all messages, or at a deadline

Messages of a topic without channels are nobody's: nothing waits for them. They stay on disk, as all messages do that
are left at the deadline. What is paused, or without consumers, holds the drain until somebody acts: it is named.
All of this is the state of one process: after a restart the broker takes messages again.
"""

import asyncio
import heapq
import logging
import signal
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.broker.topic import Topic
from nsqfast.net.slices import Slices
from nsqfast.nsqd.lookup import Lookup
from nsqfast.wire.gotext import format_duration

log = logging.getLogger("nsqd")

CHECK_S = 0.2  # between two looks at whether all is delivered
CHECK_SHARE = 0.05  # of the time, at most: a look at 10,000 channels takes some milliseconds
HELD_SHOWN = 10
REMIND_S = 60.0
NS = 1e9


class Holder(NamedTuple):
    """A queue that gives nothing to anybody."""

    topic: str
    channel: str  # '' is the topic's own queue
    messages: int
    reason: str  # "paused" or "no consumers"

    def __str__(self) -> str:
        name = f"{self.topic}/{self.channel}" if self.channel else self.topic
        return f"{name} ({self.reason}, {self.messages})"


@dataclass(slots=True)
class Left:
    """Messages that are still to be delivered: queued, in flight and deferred ones."""

    messages: int = 0
    held: int = 0  # those of `holders`
    holders: list[Holder] = field(default_factory=list)

    def add(self, topic: Topic) -> None:
        """Those of one topic for which a channel of it waits."""
        channels = topic.channels()
        if not channels:
            return
        self.messages += topic.depth
        if topic.paused:
            self._hold(topic.name, "", topic.depth, "paused")
        for channel in channels:
            queued = channel.depth + channel.deferred_count
            self.messages += queued + channel.in_flight_count
            if channel.paused or not channel.consumer_count:
                reason = "paused" if channel.paused else "no consumers"
                self._hold(topic.name, channel.name, queued, reason)

    def _hold(self, topic: str, channel: str, messages: int, reason: str) -> None:
        if messages:
            self.held += messages
            self.holders.append(Holder(topic, channel, messages, reason))

    def figures(self) -> dict[str, Any]:
        """As JSON; the holders with most messages are first."""
        holders = [one._asdict() for one in self._worst()]
        return {"messages": self.messages, "held": self.held, "held_by": holders}

    def __str__(self) -> str:
        text = f"{self.messages} messages are left"
        if not self.held:
            return text
        more = len(self.holders) - HELD_SHOWN
        names = ", ".join(map(str, self._worst())) + (f" and {more} more" if more > 0 else "")
        return f"{text}, and nobody gets {self.held} of them: {names}"

    def _worst(self) -> list[Holder]:
        return heapq.nlargest(HELD_SHOWN, self.holders, key=lambda one: one.messages)


class Drain:
    """Off until `begin`; ends by the end of the process, or by `cancel`."""

    def __init__(self, registry: Registry, lookup: Lookup) -> None:
        self._registry = registry
        self._lookup = lookup
        self._watch: asyncio.Task[None] | None = None
        self.is_over = False  # and the broker stops for that
        self._left = Left()  # at the last look
        self.since_s = 0.0  # since 1970
        self.deadline_s: float | None = None  # likewise; None = only when all is delivered

    @property
    def is_on(self) -> bool:
        """Whether new messages are refused."""
        return self._registry.is_draining

    def figures(self) -> dict[str, Any]:
        """What /stats shows of it, with the messages of the last look."""
        deadline_s = None if self.deadline_s is None else int(self.deadline_s)
        return {"since": int(self.since_s), "deadline": deadline_s, **self._left.figures()}

    def begin(self, after_ns: int | None) -> None:
        """Begin, or change the deadline of a drain that is under way."""
        self.deadline_s = None if after_ns is None else time.time() + after_ns / NS
        if self.is_on:
            log.info("DRAIN: %s", _describe_end(after_ns))
        else:
            self.since_s = time.time()
            self._registry.is_draining = True
            self._lookup.leave()
            log.info("DRAIN: new messages are refused from now on; %s", _describe_end(after_ns))
        if self._watch is not None:
            self._watch.cancel()
        end_s = None if after_ns is None else time.monotonic() + after_ns / NS
        self._watch = asyncio.get_running_loop().create_task(self._stop_when_over(end_s))

    def cancel(self) -> None:
        """Take messages again, and register with nsqlookupd."""
        if not self.is_on:
            return
        self.close()
        self._registry.is_draining = False
        self._lookup.come_back()
        log.info("DRAIN: cancelled, new messages are taken again")

    def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def look(self) -> Left:
        """Count what is still to be delivered."""
        left = Left()
        slices = Slices()
        for topic in self._registry.topics.sorted():
            left.add(topic)
            await slices.pause(1 + len(topic.channels()))
        self._left = left
        return left

    async def _stop_when_over(self, end_s: float | None) -> None:
        reminded_s = -REMIND_S
        while True:
            began_s = time.monotonic()
            left = await self.look()
            now_s = time.monotonic()
            if not left.messages:
                log.info("DRAIN: all messages are delivered; stopping")
                break
            if end_s is not None and now_s >= end_s:
                count = left.messages
                log.warning("DRAIN: the deadline has passed, %d messages are kept; stopping", count)
                break
            if left.held and now_s - reminded_s >= REMIND_S:
                log.warning("DRAIN: %s", left)
                reminded_s = now_s
            wait_s = max(CHECK_S, (now_s - began_s) / CHECK_SHARE)
            await asyncio.sleep(wait_s if end_s is None else min(wait_s, end_s - now_s))
        self.is_over = True
        signal.raise_signal(signal.SIGTERM)


def _describe_end(after_ns: int | None) -> str:
    end = "it stops when all messages are delivered"
    return end if after_ns is None else f"{end}, or after {format_duration(after_ns)}"
