"""What a consumer's connections may have in flight at the moment: the rules of `rdy` and `backoff`, applied.

In backoff the whole consumer may have one message, on one connection that is chosen by lot and changes as `rdy` says.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from nsqfast._ext.client.consume_connection import ConsumeConnection, MessageQueue
from nsqfast.client.backoff import Action, Backoff
from nsqfast.client.config import Config, seconds
from nsqfast.client.rdy import Distribution, Share, possible

if TYPE_CHECKING:
    from nsqfast.client.batch import ArrayBatch

CLOSE_WAIT_TIMEOUT_S = 5.0
STARVED = 0.85
SPREAD_REST = 10.0  # times as long as a spread took, until the next one


@dataclass(slots=True, eq=False)
class Subscription:
    """One connection and when it last got, or lost, its RDY."""

    connection: ConsumeConnection
    address: str
    rdy_max: int
    msg_timeout_s: float
    since_ns: int

    def share(self) -> Share:
        """As the distribution wants it."""
        connection = self.connection
        return Share(
            self.rdy_max, connection.rdy, connection.in_flight, connection.message_ns, self.since_ns
        )


class Flow:
    """Made with the inbox that the connections fill."""

    def __init__(self, config: Config, *, is_held: bool = False) -> None:
        self.subscriptions: list[Subscription] = []
        self.backoff = Backoff.of(config)
        self.max_in_flight = int(config.max_in_flight)
        self.is_max_in_flight_chosen = config.is_max_in_flight_given
        self.is_held = is_held  # nothing is to be delivered, whatever is allowed
        self._distribution = Distribution(
            seconds(config.low_rdy_idle_timeout), seconds(config.low_rdy_timeout)
        )
        self._interval_s = seconds(config.rdy_redistribute_interval)
        self._inbox: MessageQueue | None = None
        self._loop = asyncio.get_running_loop()
        self._pause_timer: asyncio.TimerHandle | None = None
        self._spread_timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._spread_cost_s = 0.0  # of the last one
        self._idle_waiters: list[
            tuple[asyncio.Future[None], Callable[[], list[ConsumeConnection]]]
        ] = []
        self._subscription_added = asyncio.Event()
        self._is_closed = False

    def bind(self, inbox: MessageQueue) -> None:
        """The inbox that reports successes while in backoff."""
        self._inbox = inbox

    # -- connections

    def add(self, subscription: Subscription) -> None:
        """A connection that is subscribed."""
        if self._is_closed:
            subscription.connection.close()
            return
        # By lot, so that many consumers do not all favour the same node.
        self.subscriptions.insert(random.randint(0, len(self.subscriptions)), subscription)  # noqa: S311 - no secret
        self._subscription_added.set()
        self._spread_soon()

    def remove(self, connection: ConsumeConnection) -> None:
        """One that broke: the others get its part."""
        for subscription in self.subscriptions:
            if subscription.connection is connection:
                self.subscriptions.remove(subscription)
                break
        self._spread_soon()
        self._check_idle()

    def in_flight(self) -> int:
        """Messages that wait for an answer, in all."""
        return sum(subscription.connection.in_flight for subscription in self.subscriptions)

    async def retire(self, address: str, timeout_s: float) -> None:
        """Have nothing more delivered over this connection, and wait so long for answers to what is in flight."""
        found = [
            subscription for subscription in self.subscriptions if subscription.address == address
        ]
        for subscription in found:
            subscription.rdy_max = 0
        self.spread()
        connections = [subscription.connection for subscription in found]
        goodbyes = leave_all(connections)
        await self._wait_idle(
            timeout_s, lambda: [connection for connection in connections if connection.is_open]
        )
        for connection in connections:
            connection.hand_back()
        if goodbyes:
            await asyncio.wait(goodbyes, timeout=CLOSE_WAIT_TIMEOUT_S)

    def deliverable(self, waiting: int) -> int:
        """How many may wait here at most: what is held unanswered leaves less room, and nsqd has a limit of its own."""
        allowed = min(
            self.max_in_flight, sum(subscription.rdy_max for subscription in self.subscriptions)
        )
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
        if self._is_closed or self.backoff.is_paused or not self.subscriptions:
            return
        now_ns = time.monotonic_ns()
        budget = self._budget()
        shares = [subscription.share() for subscription in self.subscriptions]
        wanted = self._distribution.wanted(budget, shares, now_ns)
        allowed = possible(budget, shares, wanted)
        # Down first: a message is not to come to the one before the other one has less.
        for subscription, count in sorted(
            zip(self.subscriptions, allowed, strict=True),
            key=lambda pair: pair[1] - pair[0].connection.rdy,
        ):
            if (count > 0) != (subscription.connection.rdy > 0):
                subscription.since_ns = now_ns
            subscription.connection.set_rdy(count)
        if allowed != wanted:
            self._watch_room()
        if len(self.subscriptions) > budget > 0:
            self._spread_later()

    def _budget(self) -> int:
        """Messages that may be in flight, in all."""
        if self.is_held:
            return 0
        count = self.max_in_flight
        if not self.is_max_in_flight_chosen:
            # With fewer than connections, RDY would go round, and messages wait where it is not.
            count = max(count, len(self.subscriptions))
        return min(1, count) if self.backoff.level else count

    def _watch_room(self) -> None:
        for subscription in self.subscriptions:
            if subscription.connection.in_flight > subscription.connection.rdy:
                subscription.connection.tell_room(subscription.connection.in_flight - 1)

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
        for subscription in self.subscriptions:
            if subscription.connection.rdy:
                subscription.since_ns = time.monotonic_ns()
            subscription.connection.set_rdy(0)
        self._pause_timer = self._loop.call_later(self.backoff.pause_s(), self._pause_over)

    def _pause_over(self) -> None:
        self._pause_timer = None
        self.backoff.pause_over()
        random.shuffle(self.subscriptions)
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
        return leave_all([subscription.connection for subscription in self.subscriptions])

    async def wait_idle(self, timeout_s: float) -> None:
        """Return when nothing is in flight, or time is up; only after `close`."""
        await self._wait_idle(
            timeout_s, lambda: [subscription.connection for subscription in self.subscriptions]
        )

    async def _wait_idle(
        self, timeout_s: float, connections: Callable[[], list[ConsumeConnection]]
    ) -> None:
        waiter = (self._loop.create_future(), connections)
        self._idle_waiters.append(waiter)
        try:
            self._check_idle()
            await asyncio.wait([waiter[0]], timeout=timeout_s)
        finally:
            self._idle_waiters.remove(waiter)

    def _check_idle(self) -> None:
        for idle, connections in self._idle_waiters:
            busy = [connection for connection in connections() if connection.in_flight]
            for connection in busy:
                connection.tell_room(connection.in_flight - 1)
            if not busy and not idle.done():
                idle.set_result(None)

    async def touch_on(self, batches: Callable[[], Iterable["ArrayBatch"]]) -> NoReturn:
        """Touch everything before half of its time is over, for ever."""
        while True:
            if not self.subscriptions:
                self._subscription_added.clear()
                await self._subscription_added.wait()
                continue
            pause_s = min([subscription.msg_timeout_s for subscription in self.subscriptions]) / 3
            await asyncio.sleep(pause_s)
            before_ns = time.monotonic_ns() - int(pause_s * 0.5e9)
            for subscription in self.subscriptions:
                subscription.connection.touch_before(before_ns)
            for batch in batches():
                batch.touch()

    def is_starved(self) -> bool:
        """Whether a connection has as good as all in flight that it may have."""
        connections = [subscription.connection for subscription in self.subscriptions]
        return any(
            connection.in_flight > 0 and connection.in_flight >= int(STARVED * connection.rdy)
            for connection in connections
        )


def leave_all(connections: Sequence[ConsumeConnection]) -> "list[asyncio.Future[bytes]]":
    """CLS to each that had none; the futures are done when nsqd has answered, or the connection is gone."""
    goodbyes = [
        connection.leave()
        for connection in connections
        if connection.is_open and not connection.is_leaving
    ]
    for goodbye in goodbyes:  # a connection may break instead of answering
        goodbye.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
    return goodbyes
