"""How many messages a consumer's connections may have in flight right now: applies the rules of `rdy` and `backoff`.

During backoff the whole consumer may have one message, on one randomly chosen connection that changes as `rdy` says.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from nsqfast._ext.client.consume_connection import ConsumeConnection, Message, MessageQueue
from nsqfast.client.backoff import Action, Backoff, BackoffRule
from nsqfast.client.config import Config, milliseconds, seconds
from nsqfast.client.lifetime import Logger, RepeatedLines

if TYPE_CHECKING:
    from nsqfast.client.batch import ArrayBatch

# How many messages each connection may have in flight: numbers in, numbers out; time is an argument. All of
# `max_in_flight` is distributed at any time, and never more: RDY that one connection gives up goes to another only as
# its messages are answered, because nsqd's RDY is a window that does not recall delivered messages. Each connection
# gets an equal share, the first ones one more if it does not divide evenly. With more connections than messages
# allowed, RDY 1 rotates: from connections that were idle, or had it long enough, to those that have gone longest
# without.

SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Share:
    """One connection, as the distribution sees it, which sets `rdy`."""

    rdy_max: int  # nsqd's max_rdy_count
    rdy: int = 0
    in_flight: int = 0
    message_ns: int = 0  # when the last message came, or when it was connected
    rdy_since_ns: int = 0  # when rdy last changed between 0 and more


def even_shares(max_in_flight: int, maxima: Sequence[int]) -> list[int]:
    """The share of each: equal up to one, within its maximum, `max_in_flight` in total if they can take it.

    With fewer messages than connections the first ones get 1 and the others 0.
    """
    shares = [0] * len(maxima)
    rest = max_in_flight
    open_ones = [index for index, most in enumerate(maxima) if most > 0]
    while rest > 0 and open_ones:
        each = rest // len(open_ones)
        for index in open_ones if each else open_ones[:rest]:
            given = min(max(each, 1), maxima[index] - shares[index])
            shares[index] += given
            rest -= given
        open_ones = [index for index in open_ones if shares[index] < maxima[index]]
    return shares


@dataclass(slots=True)
class Distribution:
    """The rule with its two timeouts."""

    idle_timeout_s: float  # low_rdy_idle_timeout
    turn_timeout_s: float  # low_rdy_timeout

    def wanted(self, max_in_flight: int, shares: Sequence[Share], now_ns: int) -> list[int]:
        """What each should have in the end."""
        if len(shares) <= max_in_flight:
            return even_shares(max_in_flight, [share.rdy_max for share in shares])
        return self._rotated(max_in_flight, shares, now_ns)

    def _rotated(self, max_in_flight: int, shares: Sequence[Share], now_ns: int) -> list[int]:
        holders = [i for i, share in enumerate(shares) if share.rdy > 0 and share.rdy_max > 0]
        without = [i for i, share in enumerate(shares) if share.rdy == 0 and share.rdy_max > 0]
        without.sort(key=lambda i: shares[i].rdy_since_ns)
        kept = [i for i in holders if not self._is_over(shares[i], now_ns)]
        # Connections whose turn is over come after all that wait, so that nothing is left undistributed.
        over = sorted(set(holders) - set(kept), key=lambda i: shares[i].rdy_since_ns)
        chosen = [*kept, *without, *over][:max_in_flight]
        return [int(i in chosen) for i in range(len(shares))]

    def _is_over(self, share: Share, now_ns: int) -> bool:
        idle_s = (now_ns - max(share.message_ns, share.rdy_since_ns)) / SECOND_NS
        held_s = (now_ns - share.rdy_since_ns) / SECOND_NS
        return idle_s >= self.idle_timeout_s or held_s >= self.turn_timeout_s


def possible(max_in_flight: int, shares: Sequence[Share], wanted: Sequence[int]) -> list[int]:
    """What can be set now: lower at once, raise as far as messages in flight leave room."""
    allowed = [min(share.rdy, want) for share, want in zip(shares, wanted, strict=True)]
    room = max_in_flight - sum(
        max(low, share.in_flight) for low, share in zip(allowed, shares, strict=True)
    )
    # Give one to each before any gets more: a new connection must not wait for a large old one.
    for limit in (1, None):
        for index, (share, want) in enumerate(zip(shares, wanted, strict=True)):
            target = want if limit is None else min(want, limit)
            # Messages in flight there already use up the room.
            used = max(allowed[index], share.in_flight)
            raised = min(target, used + max(room, 0))
            if raised > allowed[index]:
                room -= max(0, raised - used)
                allowed[index] = raised
    return allowed


CLOSE_WAIT_TIMEOUT_S = 5.0
STARVED = 0.85
MSG_TIMEOUT_S = 60.0  # while nothing is connected
SPREAD_REST = 10.0  # rest between two spreads, in multiples of the time that the last one took


@dataclass(slots=True, eq=False)
class Subscription:
    """One connection, and when it last got or lost its RDY."""

    connection: ConsumeConnection
    address: str
    rdy_max: int
    msg_timeout_s: float
    since_ns: int

    def share(self) -> Share:
        """The connection as the distribution sees it."""
        connection = self.connection
        return Share(
            self.rdy_max, connection.rdy, connection.in_flight, connection.message_ns, self.since_ns
        )


class Flow:
    """RDY and backoff of one consumer; and the inbox that the connections fill."""

    def __init__(
        self,
        config: Config,
        rule: BackoffRule,
        log: Logger,
        name: str,
        give_up: Callable[[Message], None],
        move: Callable[[Message, str], None],
        *,
        is_held: bool = False,
    ) -> None:
        self.subscriptions: list[Subscription] = []
        self.backoff = Backoff.of(config, rule)
        self._log = log
        self._name = name
        self._give_up = give_up
        self._move = move
        self._repeated = RepeatedLines(log, name)
        self._forgotten = 0  # as of the last look
        self._backoff_since_s = 0.0  # when it began, by the loop's clock
        self._pause_s_said = 0.0
        self.max_in_flight = int(config.max_in_flight)
        self.is_max_in_flight_chosen = config.is_max_in_flight_given
        self.is_held = is_held  # nothing may be delivered, whatever the other rules allow
        self._distribution = Distribution(
            seconds(config.low_rdy_idle_timeout), seconds(config.low_rdy_timeout)
        )
        self._interval_s = seconds(config.rdy_redistribute_interval)
        self._loop = asyncio.get_running_loop()
        self.inbox = MessageQueue(
            self._loop,
            self,
            config.max_attempts,
            milliseconds(config.default_requeue_delay),
            milliseconds(config.max_requeue_delay),
        )
        self._pause_timer: asyncio.TimerHandle | None = None
        self._spread_timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._spread_cost_s = 0.0  # time that the last one took
        self._idle_waiters: list[
            tuple[asyncio.Future[None], Callable[[], list[ConsumeConnection]]]
        ] = []
        self._subscription_added = asyncio.Event()
        self._is_closed = False

    # -- connections

    def add(self, subscription: Subscription) -> None:
        """Add a subscribed connection."""
        if self._is_closed:
            subscription.connection.close()
            return
        # In random order, so that many consumers do not all favour the same node.
        self.subscriptions.insert(random.randint(0, len(self.subscriptions)), subscription)  # noqa: S311 - no secret
        self._subscription_added.set()
        self._spread_soon()

    def remove(self, connection: ConsumeConnection) -> None:
        """Remove a broken connection: the others get its share."""
        for subscription in self.subscriptions:
            if subscription.connection is connection:
                self.subscriptions.remove(subscription)
                break
        self._spread_soon()
        self._check_idle()

    def in_flight(self) -> int:
        """Unanswered messages, in total."""
        return sum(subscription.connection.in_flight for subscription in self.subscriptions)

    async def retire(self, address: str, timeout_s: float) -> None:
        """Stop deliveries over this connection, and wait up to this long for answers to messages in flight."""
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
        """How many messages may wait here at most: unanswered ones reduce the room, and nsqd has its own limit."""
        allowed = min(
            self.max_in_flight, sum(subscription.rdy_max for subscription in self.subscriptions)
        )
        return allowed - (self.in_flight() - waiting)

    def set_max_in_flight(self, count: int) -> None:
        """Change it from here on."""
        self.is_max_in_flight_chosen = True
        self.choose_max_in_flight(count)

    def choose_max_in_flight(self, count: int) -> None:
        """Use this number unless the user chose one."""
        self.max_in_flight = count
        self.spread()

    def pause(self) -> None:
        """RDY 0 everywhere, until `resume`."""
        self.is_held = True
        self.spread()

    def resume(self) -> None:
        """Restore RDY after `pause`."""
        self.is_held = False
        self.spread()

    # -- RDY

    def _spread_soon(self) -> None:
        """Collect the changes of one turn and spread RDY once. With thousands of connections, collect those of several
        turns, so that the time goes to the connections and not to counting them again and again.
        """
        if self._soon is None and not self._is_closed:
            self._soon = self._loop.call_later(
                self._spread_cost_s * SPREAD_REST, self._spread_timed
            )

    def _spread_timed(self) -> None:
        began_s = time.monotonic()
        self.spread()
        self._spread_cost_s = time.monotonic() - began_s

    def spread(self) -> None:
        """Set the current RDY of each connection, and schedule the rest."""
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
        # Lower first: the total must not exceed the limit in between.
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
        """How many messages may be in flight, in total."""
        if self.is_held:
            return 0
        count = self.max_in_flight
        if not self.is_max_in_flight_chosen:
            # With fewer messages than connections, RDY would rotate, and messages would wait on the connections without
            # it.
            count = max(count, len(self.subscriptions))
        return min(1, count) if self.backoff.level else count

    def _watch_room(self) -> None:
        for subscription in self.subscriptions:
            if subscription.connection.in_flight > subscription.connection.rdy:
                subscription.connection.report_room_at(subscription.connection.in_flight - 1)

    def _spread_later(self) -> None:
        if self._spread_timer is None:
            self._spread_timer = self._loop.call_later(self._interval_s, self._spread_again)

    def _spread_again(self) -> None:
        self._spread_timer = None
        self.spread()

    # -- events of the inbox

    def on_room(self) -> None:
        """A connection has fewer messages in flight than when it was watched."""
        self._spread_soon()
        self._check_idle()

    def on_success(self) -> None:
        """A message was finished during backoff."""
        self._act(self.backoff.success())

    def on_failure(self, count: int) -> None:
        """So many messages were requeued."""
        self._act(self.backoff.failure(self.inbox.finished, count))

    def on_neutral(self) -> None:
        """A message was requeued without backoff, or given up, during backoff."""
        self._act(self.backoff.neutral())

    def on_late(self, _connection: ConsumeConnection, text: str) -> None:
        """nsqd had already given the message to another consumer, or has no place for what was rejected."""
        if text.endswith(" it is a dead letter"):
            self._log.warning("%s: requeued, for it was not rejected: %s", self._name, text)
        else:
            self._log.warning("%s: an answer came too late: %s", self._name, text)

    def on_hopeless(self, message: Message) -> None:
        """A message has used up its attempts."""
        self._give_up(message)

    def on_rejected(self, message: Message, reason: str) -> None:
        """A message was rejected, which its nsqd does not offer."""
        self._move(message, reason)

    # -- backoff

    def _act(self, action: Action) -> None:
        """Carry out the action that an outcome leads to."""
        if action is Action.NOTHING or self._is_closed:
            return
        self.inbox.reports_success = self.backoff.level > 0
        pause_s = self.backoff.pause_s()
        self._say(action, pause_s)
        if action is Action.RESUME:
            self.spread()
            return
        for subscription in self.subscriptions:
            if subscription.connection.rdy:
                subscription.since_ns = time.monotonic_ns()
            subscription.connection.set_rdy(0)
        self._pause_timer = self._loop.call_later(pause_s, self._pause_over)

    def _say(self, action: Action, pause_s: float) -> None:
        """Say when pauses begin, grow, and end."""
        now_s = self._loop.time()
        if action is Action.RESUME:
            self._log.info(
                "%s: no more pauses, after %.1f s", self._name, now_s - self._backoff_since_s
            )
            self._pause_s_said = 0.0
            return
        if self._pause_s_said == 0.0:
            self._backoff_since_s = now_s
        if pause_s > self._pause_s_said:
            self._pause_s_said = pause_s
            self._log.info(
                "%s: deliveries pause for %.1f s: %s", self._name, pause_s, self.backoff.reason
            )

    def _pause_over(self) -> None:
        self._pause_timer = None
        self.backoff.pause_over()
        random.shuffle(self.subscriptions)
        self.spread()

    # -- the end

    def close(self) -> None:
        """Send no more RDY."""
        self._is_closed = True
        for handle in (self._pause_timer, self._spread_timer, self._soon):
            if handle is not None:
                handle.cancel()

    def leave(self) -> "list[asyncio.Future[bytes]]":
        """Send CLS on every connection, once; the futures are done when nsqd has answered."""
        self.close()
        return leave_all([subscription.connection for subscription in self.subscriptions])

    async def wait_idle(self, timeout_s: float) -> None:
        """Return when nothing is in flight, or the time is over; call it only after `close`."""
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
                connection.report_room_at(connection.in_flight - 1)
            if not busy and not idle.done():
                idle.set_result(None)

    def msg_timeout_s(self) -> float:
        """How long a message may be in flight, on the connection where that is shortest."""
        return min([one.msg_timeout_s for one in self.subscriptions], default=MSG_TIMEOUT_S)

    async def watch_on(
        self, batches: Callable[[], Iterable["ArrayBatch"]], is_touching: bool
    ) -> NoReturn:
        """Touch every message before half of its time is over, or else tell of those whose time is over, for ever."""
        while True:
            if not self.subscriptions:
                self._subscription_added.clear()
                await self._subscription_added.wait()
                continue
            timeout_s = self.msg_timeout_s()
            await asyncio.sleep(timeout_s / 3)
            if is_touching:
                self._touch(timeout_s / 6, batches())
            self._tell_of_overdue(timeout_s)

    def _touch(self, age_s: float, batches: Iterable["ArrayBatch"]) -> None:
        before_ns = time.monotonic_ns() - int(age_s * 1e9)
        for subscription in self.subscriptions:
            subscription.connection.touch_before(before_ns)
        for batch in batches:
            batch.touch()

    def _tell_of_overdue(self, timeout_s: float) -> None:
        before_ns = time.monotonic_ns() - int(timeout_s * 1e9)
        late = [
            message
            for subscription in self.subscriptions
            if (message := subscription.connection.find_before(before_ns)) is not None
        ]
        if late:
            self._repeated.say(
                "overdue",
                logging.WARNING,
                f"{late[0]!r} was not answered in {timeout_s:g} s, and nsqd delivers it again: answer sooner, raise "
                "msg_timeout, call touch(), or use auto_touch=True",
            )
        count, self._forgotten = self.inbox.forgotten - self._forgotten, self.inbox.forgotten
        if count:
            self._repeated.say(
                "forgotten",
                logging.WARNING,
                f"messages that the program let go without finish() or requeue(): {count}; nsqd delivers them again",
            )

    def is_starved(self) -> bool:
        """Whether a connection has nearly as many messages in flight as it may have."""
        connections = [subscription.connection for subscription in self.subscriptions]
        return any(
            connection.in_flight > 0 and connection.in_flight >= int(STARVED * connection.rdy)
            for connection in connections
        )


def leave_all(connections: Sequence[ConsumeConnection]) -> "list[asyncio.Future[bytes]]":
    """Send CLS on each connection that has sent none; the futures are done when nsqd has answered, or the connection is
    gone.
    """
    goodbyes = [
        connection.leave()
        for connection in connections
        if connection.is_open and not connection.is_leaving
    ]
    for goodbye in goodbyes:  # a connection may break instead of answering
        goodbye.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
    return goodbyes
