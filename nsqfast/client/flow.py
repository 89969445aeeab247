"""What a consumer's connections may have in flight at the moment: the rules of `rdy` and `backoff`, applied.

In backoff the whole consumer may have one message, on one connection that is chosen by lot and changes as `rdy` says.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from nsqfast._ext.client.consume_connection import Inbox, Intake
from nsqfast.client.backoff import Action, Backoff
from nsqfast.client.config import Config, seconds
from nsqfast.client.rdy import Distribution, Share, possible

if TYPE_CHECKING:
    from nsqfast.client.batch import ArrayBatch

CLOSE_WAIT_TIMEOUT_S = 5.0
STARVED = 0.85
SPREAD_REST = 10.0  # times as long as a spread took, until the next one


@dataclass(slots=True, eq=False)
class Lane:
    """One connection and when it last got, or lost, its RDY."""

    link: Intake
    address: str
    rdy_max: int
    msg_timeout_s: float
    since_ns: int

    def share(self) -> Share:
        """As the distribution wants it."""
        link = self.link
        return Share(self.rdy_max, link.rdy, link.in_flight, link.message_ns, self.since_ns)


class Flow:
    """Made with the inbox that the connections fill."""

    def __init__(self, config: Config, *, is_held: bool = False) -> None:
        self.lanes: list[Lane] = []
        self.backoff = Backoff.of(config)
        self.max_in_flight = int(config.max_in_flight)
        self.is_max_in_flight_chosen = config.is_max_in_flight_given
        self.is_held = is_held  # nothing is to be delivered, whatever is allowed
        self._distribution = Distribution(
            seconds(config.low_rdy_idle_timeout), seconds(config.low_rdy_timeout)
        )
        self._interval_s = seconds(config.rdy_redistribute_interval)
        self._inbox: Inbox | None = None
        self._loop = asyncio.get_running_loop()
        self._pause_timer: asyncio.TimerHandle | None = None
        self._spread_timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._spread_cost_s = 0.0  # of the last one
        self._idle_waiters: list[tuple[asyncio.Future[None], Callable[[], list[Intake]]]] = []
        self._lane_added = asyncio.Event()
        self._is_closed = False

    def bind(self, inbox: Inbox) -> None:
        """The inbox that reports successes while in backoff."""
        self._inbox = inbox

    # -- connections

    def add(self, lane: Lane) -> None:
        """A connection that is subscribed."""
        if self._is_closed:
            lane.link.close()
            return
        # By lot, so that many consumers do not all favour the same node.
        self.lanes.insert(random.randint(0, len(self.lanes)), lane)  # noqa: S311 - no secret
        self._lane_added.set()
        self._spread_soon()

    def remove(self, link: Intake) -> None:
        """One that broke: the others get its part."""
        for lane in self.lanes:
            if lane.link is link:
                self.lanes.remove(lane)
                break
        self._spread_soon()
        self._check_idle()

    def in_flight(self) -> int:
        """Messages that wait for an answer, in all."""
        return sum(lane.link.in_flight for lane in self.lanes)

    async def retire(self, address: str, timeout_s: float) -> None:
        """Have nothing more delivered over this connection, and wait so long for answers to what is in flight."""
        found = [lane for lane in self.lanes if lane.address == address]
        for lane in found:
            lane.rdy_max = 0
        self.spread()
        links = [lane.link for lane in found]
        goodbyes = leave_all(links)
        await self._wait_idle(timeout_s, lambda: [link for link in links if link.is_open])
        for link in links:
            link.hand_back()
        if goodbyes:
            await asyncio.wait(goodbyes, timeout=CLOSE_WAIT_TIMEOUT_S)

    def deliverable(self, waiting: int) -> int:
        """How many may wait here at most: what is held unanswered leaves less room, and nsqd has a limit of its own."""
        allowed = min(self.max_in_flight, sum(lane.rdy_max for lane in self.lanes))
        return allowed - (self.in_flight() - waiting)

    def set_max_in_flight(self, count: int) -> None:
        """From here on."""
        self.is_max_in_flight_chosen = True
        self.choose_max_in_flight(count)

    def choose_max_in_flight(self, count: int) -> None:
        """What serves best as long as nobody says otherwise."""
        self.max_in_flight = count
        self.spread()

    def pause(self) -> None:
        """RDY 0 everywhere, until `resume`."""
        self.is_held = True
        self.spread()

    def resume(self) -> None:
        """As before `pause`."""
        self.is_held = False
        self.spread()

    # -- RDY

    def _spread_soon(self) -> None:
        """What changes in one turn is dealt with together; and with thousands of connections, in several turns, so that
        the time goes to the connections and not to counting them again and again."""
        if self._soon is None and not self._is_closed:
            self._soon = self._loop.call_later(
                self._spread_cost_s * SPREAD_REST, self._spread_timed
            )

    def _spread_timed(self) -> None:
        began_s = time.monotonic()
        self.spread()
        self._spread_cost_s = time.monotonic() - began_s

    def spread(self) -> None:
        """Give each connection what it is to have now, and see to it that the rest follows."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._is_closed or self.backoff.is_paused or not self.lanes:
            return
        now_ns = time.monotonic_ns()
        budget = self._budget()
        shares = [lane.share() for lane in self.lanes]
        wanted = self._distribution.wanted(budget, shares, now_ns)
        allowed = possible(budget, shares, wanted)
        # Down first: a message is not to come to the one before the other one has less.
        for lane, count in sorted(
            zip(self.lanes, allowed, strict=True), key=lambda pair: pair[1] - pair[0].link.rdy
        ):
            if (count > 0) != (lane.link.rdy > 0):
                lane.since_ns = now_ns
            lane.link.set_rdy(count)
        if allowed != wanted:
            self._watch_room()
        if len(self.lanes) > budget > 0:
            self._spread_later()

    def _budget(self) -> int:
        """Messages that may be in flight, in all."""
        if self.is_held:
            return 0
        count = self.max_in_flight
        if not self.is_max_in_flight_chosen:
            # With fewer than connections, RDY would go round, and messages wait where it is not.
            count = max(count, len(self.lanes))
        return min(1, count) if self.backoff.level else count

    def _watch_room(self) -> None:
        for lane in self.lanes:
            if lane.link.in_flight > lane.link.rdy:
                lane.link.tell_room(lane.link.in_flight - 1)

    def _spread_later(self) -> None:
        if self._spread_timer is None:
            self._spread_timer = self._loop.call_later(self._interval_s, self._spread_again)

    def _spread_again(self) -> None:
        self._spread_timer = None
        self.spread()

    def on_room(self) -> None:
        """A connection has fewer messages in flight than when it was watched."""
        self._spread_soon()
        self._check_idle()

    # -- backoff

    def act(self, action: Action) -> None:
        """Do what an outcome leads to."""
        if action is Action.NOTHING or self._is_closed:
            return
        assert self._inbox is not None
        self._inbox.reports_success = self.backoff.level > 0
        if action is Action.RESUME:
            self.spread()
            return
        for lane in self.lanes:
            if lane.link.rdy:
                lane.since_ns = time.monotonic_ns()
            lane.link.set_rdy(0)
        self._pause_timer = self._loop.call_later(self.backoff.pause_s(), self._pause_over)

    def _pause_over(self) -> None:
        self._pause_timer = None
        self.backoff.pause_over()
        random.shuffle(self.lanes)
        self.spread()

    # -- the end

    def close(self) -> None:
        """No RDY is sent any more."""
        self._is_closed = True
        for handle in (self._pause_timer, self._spread_timer, self._soon):
            if handle is not None:
                handle.cancel()

    def leave(self) -> "list[asyncio.Future[bytes]]":
        """CLS on every connection, once; the futures are done when nsqd has answered."""
        self.close()
        return leave_all([lane.link for lane in self.lanes])

    async def wait_idle(self, timeout_s: float) -> None:
        """Return when nothing is in flight, or time is up; only after `close`."""
        await self._wait_idle(timeout_s, lambda: [lane.link for lane in self.lanes])

    async def _wait_idle(self, timeout_s: float, links: Callable[[], list[Intake]]) -> None:
        waiter = (self._loop.create_future(), links)
        self._idle_waiters.append(waiter)
        try:
            self._check_idle()
            await asyncio.wait([waiter[0]], timeout=timeout_s)
        finally:
            self._idle_waiters.remove(waiter)

    def _check_idle(self) -> None:
        for idle, links in self._idle_waiters:
            busy = [link for link in links() if link.in_flight]
            for link in busy:
                link.tell_room(link.in_flight - 1)
            if not busy and not idle.done():
                idle.set_result(None)

    async def touch_on(self, batches: Callable[[], Iterable["ArrayBatch"]]) -> NoReturn:
        """Touch everything before half of its time is over, for ever."""
        while True:
            if not self.lanes:
                self._lane_added.clear()
                await self._lane_added.wait()
                continue
            pause_s = min([lane.msg_timeout_s for lane in self.lanes]) / 3
            await asyncio.sleep(pause_s)
            before_ns = time.monotonic_ns() - int(pause_s * 0.5e9)
            for lane in self.lanes:
                lane.link.touch_before(before_ns)
            for batch in batches():
                batch.touch()

    def is_starved(self) -> bool:
        """Whether a connection has as good as all in flight that it may have."""
        links = [lane.link for lane in self.lanes]
        return any(
            link.in_flight > 0 and link.in_flight >= int(STARVED * link.rdy) for link in links
        )


def leave_all(links: Sequence[Intake]) -> "list[asyncio.Future[bytes]]":
    """CLS to each that had none; the futures are done when nsqd has answered, or the connection is gone."""
    goodbyes = [link.leave() for link in links if link.is_open and not link.is_leaving]
    for goodbye in goodbyes:  # a connection may break instead of answering
        goodbye.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
    return goodbyes
