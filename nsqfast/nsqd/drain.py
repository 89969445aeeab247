"""A broker that is being emptied, before it is taken away: POST /drain.

    refuses      PUB, MPUB and DPUB by E_PUB_FAILED and its kin, HTTP by 503: clients try another broker
    leaves       every nsqlookupd, so that consumers do not come any more; those that are connected go on
    says so      /ping is 503 `NOK - draining`, for load balancers; /stats, /info and /metrics
    stops        as SIGTERM does, when its consumers have finished all messages, or at a deadline

Messages of a topic without channels are nobody's: nothing waits for them. They stay on disk, as all messages do that
are left at the deadline. All of this is the state of one process: after a restart the broker takes messages again.
"""

import asyncio
import logging
import signal
import time
from typing import Any

from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.core.budget import Part
from nsqfast.gotext import format_duration
from nsqfast.nsqd.lookup import Lookup

log = logging.getLogger("nsqd")

CHECK_S = 0.2  # between two looks at whether all is delivered
NS = 1e9


def count_undelivered(topic: Topic) -> int:
    """Messages for which a channel of this topic still waits: queued, in flight and deferred ones."""
    channels = topic.channels()
    if not channels:
        return 0
    return topic.depth + sum(
        [channel.depth + channel.in_flight_count + channel.deferred_count for channel in channels]
    )


class Drain:
    """Off until `begin`; ends by the end of the process, or by `cancel`."""

    def __init__(self, registry: Registry, lookup: Lookup) -> None:
        self._registry = registry
        self._lookup = lookup
        self._watch: asyncio.Task[None] | None = None
        self.is_over = False  # and the broker stops for that
        self.since_s = 0.0  # since 1970
        self.deadline_s: float | None = None  # likewise; None = only when all is delivered

    @property
    def is_on(self) -> bool:
        """Whether new messages are refused."""
        return self._registry.is_draining

    def figures(self) -> dict[str, Any]:
        """What /stats shows of it."""
        deadline_s = None if self.deadline_s is None else int(self.deadline_s)
        return {"since": int(self.since_s), "deadline": deadline_s}

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

    async def count_left(self, most: int | None = None) -> int:
        """Messages that are still to be delivered; looks no further when it has found more than `most`."""
        left = 0
        part = Part()
        for topic in self._registry.topics():
            left += count_undelivered(topic)
            if most is not None and left > most:
                break
            if part.is_spent(1 + len(topic.channels())):
                await asyncio.sleep(0)  # others are served before the next part
                part = Part()
        return left

    async def _stop_when_over(self, end_s: float | None) -> None:
        while await self.count_left(most=0):
            if end_s is not None and time.monotonic() >= end_s:
                left = await self.count_left()
                log.warning("DRAIN: the deadline has passed, %d messages are kept; stopping", left)
                break
            wait_s = CHECK_S if end_s is None else min(CHECK_S, end_s - time.monotonic())
            await asyncio.sleep(max(wait_s, 0))
        else:
            log.info("DRAIN: all messages are delivered; stopping")
        self.is_over = True
        signal.raise_signal(signal.SIGTERM)


def _describe_end(after_ns: int | None) -> str:
    end = "it stops when all messages are delivered"
    return end if after_ns is None else f"{end}, or after {format_duration(after_ns)}"
