"""Consume a channel: one message at a time, with a handler, in batches, or as numpy arrays.

A received message is finished, requeued, or handed back when the consumer stops. If its connection breaks, nsqd
delivers it again, and its `finish` returns False.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

from nsqfast._ext.client.columns import Taken
from nsqfast._ext.client.consume_connection import (
    NOT_TRIED,
    ConsumeConnection,
    Message,
    MessageQueue,
)
from nsqfast.client.addresses import find_addresses, plain_address, read_nsqd
from nsqfast.client.backoff import BackoffRule, check_rule
from nsqfast.client.callbacks import check_handler
from nsqfast.client.config import Config
from nsqfast.client.connection import dial, make_consumer_connection, prepare, subscribe
from nsqfast.client.discovery import Discovery
from nsqfast.client.failures import Failures, GivingUp, OnFailure
from nsqfast.client.flow import CLOSE_WAIT_TIMEOUT_S, Flow, Subscription
from nsqfast.client.lifetime import Logger, Resource, stopped_by_signals, warn_of_other_consumer
from nsqfast.client.loop_watch import watch_loop
from nsqfast.client.message import Batch, load_array_batch
from nsqfast.client.middleware import Middleware, around_handler
from nsqfast.client.nodes import ChooseNodes, Nodes
from nsqfast.client.payload import Decoder, Result, Value, ValueHandler, choose_call
from nsqfast.client.reconnector import Opened, Reconnector
from nsqfast.client.stats import ConsumerStats, consumer_stats
from nsqfast.client.workers import Workers
from nsqfast.errors import ClosedError, OptionsError
from nsqfast.wire.names import check_name

if TYPE_CHECKING:
    from nsqfast.client.batch import ArrayBatch

T = TypeVar("T")

HANDLER_GRACE_S = 30.0
STILL_SHARE = (
    0.25  # of the time that a message may be in flight: so long may the event loop stand still
)


class Consumer(Resource, Generic[Value]):
    """Consumes a channel.

    `nsqd` are addresses to stay connected to, `nsqlookupd` those to ask for them; give one or both, as a string or a
    list. Without any, those of NSQFAST_NSQD and NSQFAST_LOOKUPD in the environment count.

    A message that was delivered more than `max_attempts` times (of the config, 5) is dropped, with a WARNING, unless
    one of these is given; if it fails, the message is requeued instead.
    dead_letter_topic: where to publish its body, on the same nsqd, before it is finished.
    giving_up: called with the message before it is finished.
    If none of the three is given, an nsqfast-nsqd decides when a message dies, by its policies.

    on_failure: called with a message and what its handler raised; returns why it failed, as nsqfast-nsqd keeps it, or
    None for the class and the first line of the exception.

    auto_touch: touch messages in flight before they time out, until they are answered.
    backoff: when failures pause the consumer. "share": when half of the last 16 messages failed, or more; "nsq": at
    each, as go-nsq does. `max_backoff_duration_s=0` in the config turns both off.
    choose_nodes: called with the addresses that an nsqlookupd listed; returns the ones to connect to. It may leave out
    some (another zone) or replace some (a tunnel). If it raises, that answer does not count.
    decoder: makes what `run` calls a handler with of a body; see nsqfast.client.payload.
    middleware: around each call of a handler by `run`. logger: instead of "nsqfast.client".
    """

    kind: ClassVar[str] = "consumer"

    def __init__(
        self,
        topic: str,
        channel: str,
        *,
        nsqd: str | Sequence[str] = (),
        nsqlookupd: str | Sequence[str] = (),
        config: Config | None = None,
        auto_touch: bool = False,
        giving_up: GivingUp | None = None,
        dead_letter_topic: str | None = None,
        on_failure: OnFailure | None = None,
        backoff: BackoffRule = "share",
        choose_nodes: ChooseNodes = list,
        decoder: Decoder[Value] | None = None,
        middleware: Sequence[Middleware] = (),
        logger: Logger | None = None,
    ) -> None:
        super().__init__(logger)
        self._topic, self._channel = check_name("topic", topic), check_name("channel", channel)
        self.name = f"{topic}/{channel}"
        direct, lookups = find_addresses(nsqd, nsqlookupd)
        direct, self._config = read_nsqd(direct, Config.given(config))
        self._context = prepare(self._config, self._log)
        self.failures = Failures(
            topic, self.name, self._config, self._log, giving_up, dead_letter_topic, on_failure
        )
        self._rule = check_rule(backoff)
        discovery = Discovery(lookups, topic, self._config, self._log)
        self._nodes = Nodes(self.name, direct, discovery, choose_nodes, self._config, self._log)
        self._auto_touch = auto_touch
        self._decoder = decoder
        self._middleware = middleware
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workers: Workers | None = None
        self._was_run = False
        self._batches: set[ArrayBatch] = set()  # with unanswered rows
        self._goodbyes: list[asyncio.Future[bytes]] = []
        self._flow: Flow | None = None
        self._inbox: MessageQueue | None = None
        self._is_stop_requested = False
        self._is_paused = False
        self._stop_task: asyncio.Task[None] | None = None

    # -- beginning and end

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Return when one nsqd is connected, or when all were tried in vain; failed ones are retried for ever.

        RefusedError, WrongPeerError: every nsqd refuses us, or the given addresses are not those of an nsqd.
        """
        self._begin()
        warn_of_other_consumer(self, self.name)
        self._flow = Flow(
            self._config,
            self._rule,
            self._log,
            self.name,
            self.failures.begin_to_give_up,
            self.failures.begin_to_move,
            is_held=self._is_paused,
        )
        self._inbox = self._flow.inbox
        self._inbox.moves_rejected = self.failures.has_dead_letter_topic
        if self._is_stop_requested:
            self._leave()
            return
        self._spawn(self._flow.watch_on(lambda: self._batches, self._auto_touch))
        try:
            await self._nodes.start(self, self._inbox.wait_stopped())
        except BaseException:
            await self.stop()
            raise

    def request_stop(self) -> None:
        """Make iterators and `run` end, or not begin; call it at any time, from any thread or signal handler.

        Nothing more is delivered, and messages that were not taken are handed back.
        """
        self._is_stop_requested = True
        if self._inbox is not None and self._loop is not None and not self._why_unusable:
            self._inbox.end()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        """Stop deliveries, and hand back untaken messages; answers can still be given."""
        assert self._inbox is not None
        assert self._flow is not None
        inbox = self._inbox
        inbox.stop()
        self._nodes.cancel()
        self._goodbyes += self._flow.leave()
        # After CLS, so that messages handed back do not come here again.
        for message in inbox.take(len(inbox)):
            message.requeue(0, backoff=False, reason=NOT_TRIED)
        while taken := inbox.take_columns():
            self._arrays_of(taken).requeue(reason=NOT_TRIED)

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take no more messages, wait up to `grace_s` for answers, hand back the rest, disconnect."""
        if self._inbox is None or self._why_unusable:
            return
        self._check_loop()
        if self._stop_task is None:
            self._stop_task = asyncio.create_task(self._stop(grace_s))
        await asyncio.shield(self._stop_task)

    async def _stop(self, grace_s: float) -> None:
        assert self._flow is not None
        self._leave()
        for task in self._tasks:
            task.cancel()
        if grace_s > 0:
            await self._flow.wait_idle(grace_s)
        if self._workers is not None:
            await self._workers.stop()
        self.failures.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for batch in list(self._batches):
            batch.requeue(reason=NOT_TRIED)
        for subscription in self._flow.subscriptions:
            subscription.connection.hand_back()
        if self._goodbyes:
            await asyncio.wait(self._goodbyes, timeout=CLOSE_WAIT_TIMEOUT_S)
        await self._nodes.stop()
        await self.failures.close()
        self._finish()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _ready(self) -> MessageQueue:
        """For methods that also work on a stopped consumer."""
        self._check_use()
        assert self._inbox is not None
        return self._inbox

    def _ready_to_consume(self) -> MessageQueue:
        self._check_loop()
        if self._stop_task is not None:
            raise ClosedError("the consumer has stopped; make a new one")
        return self._ready()

    # -- connections

    async def open(self, address: str, on_closed: Callable[[Any], None]) -> Opened:
        """Used by the reconnectors."""
        assert self._flow is not None
        flow = self._flow

        def closed(connection: ConsumeConnection) -> None:
            flow.remove(connection)
            self.failures.forget(address)
            on_closed(connection)

        make = make_consumer_connection(self._ready(), closed)
        connection, features = await dial(address, self._config, self._context, make)
        connection.address = address
        connection.may_reject = features.may_reject
        connection.attempts_max = self.failures.attempts_max(
            address, may_reject=features.may_reject
        )
        await subscribe(connection, self._topic, self._channel)
        timeout_s = features.msg_timeout_ms / 1000
        flow.add(
            Subscription(
                connection, address, features.max_rdy_count, timeout_s, time.monotonic_ns()
            )
        )
        return Opened(connection, f"{features.name}, subscribed")

    def on_trouble(self, reconnector: Reconnector) -> None:  # noqa: ARG002 - another owner needs it
        """Used by the reconnectors."""
        self._nodes.ask_soon()

    def on_cancelled(self) -> None:
        """Used by the reconnectors."""
        self._forbid_after_loop(self.name)

    async def add_nsqd(self, address: str) -> None:
        """Connect to this nsqd, too; returns after the first attempt. RefusedError: it refuses us."""
        self._ready_to_consume()
        await self._nodes.add_nsqd(plain_address(address, self._config))

    async def drop_nsqd(self, address: str, grace_s: float = HANDLER_GRACE_S) -> None:
        """Take no more messages from this nsqd, wait up to `grace_s` for answers, hand back the rest, disconnect.

        OptionsError: the address was found through nsqlookupd instead of given, or is unknown.
        """
        self._ready_to_consume()
        address = plain_address(address, self._config)
        self._nodes.check_direct(address)
        await self._steer().retire(address, grace_s)
        await self._nodes.forget(address)

    async def add_nsqlookupd(self, address: str) -> None:
        """Ask this nsqlookupd, too, starting now."""
        self._ready_to_consume()
        self._nodes.add_nsqlookupd(address)

    async def drop_nsqlookupd(self, address: str) -> None:
        """Ask this nsqlookupd no more; nsqd that it listed stay connected as long as their connections last."""
        self._ready_to_consume()
        self._nodes.drop_nsqlookupd(address)

    def _steer(self) -> Flow:
        assert self._flow is not None
        return self._flow

    # -- ways to consume

    def __aiter__(self) -> MessageQueue:
        return self._ready_to_consume()

    @overload
    async def run(
        self,
        handler: ValueHandler[Value],
        concurrency: int = 1,
        grace_s: float = HANDLER_GRACE_S,
        *,
        stop_on_signals: bool | None = None,
    ) -> None: ...
    @overload
    async def run(
        self,
        handler: ValueHandler[T],
        concurrency: int = 1,
        grace_s: float = HANDLER_GRACE_S,
        *,
        type: type[T],
        stop_on_signals: bool | None = None,
    ) -> None: ...
    async def run(
        self,
        handler: Callable[..., Result],
        concurrency: int = 1,
        grace_s: float = HANDLER_GRACE_S,
        *,
        type: Any = None,
        stop_on_signals: bool | None = None,
    ) -> None:
        """Call `handler` with each message, `concurrency` at a time, until `request_stop`, `stop`, cancellation, or a
        signal.

        Returning finishes the message, and an exception requeues it with backoff, unless it was already answered or
        kept (`message.keep`). A handler that is not a coroutine function runs on the event loop, so it must not block.
        At a stop, handlers have `grace_s` to end. If `max_in_flight` was not given, it is the concurrency.
        stop_on_signals: whether SIGTERM and SIGINT stop it; None = in the main thread, where nobody else handles them.
        type: call it with the body as this type instead, or with that and the message (nsqfast.client.payload).
        """
        handler = choose_call(handler, type, self._decoder)
        check_handler(handler, concurrency)
        with stopped_by_signals(self.request_stop, stop_on_signals):
            if self._inbox is None:
                await self.start()
            inbox = self._ready_to_consume()
            self.prepare_run(concurrency)
            around = around_handler(self._middleware, self._topic, self._channel, handler)
            limit_s = self._steer().msg_timeout_s
            with watch_loop(lambda: STILL_SHARE * limit_s(), self._log, self.name):
                self._workers = Workers(around, concurrency, inbox, self.failures, self.name)
                try:
                    await self._workers.wait()
                finally:
                    await self.stop(grace_s)

    def prepare_run(self, concurrency: int) -> None:
        """Prepare for this many handlers at a time; ClosedError if handlers have run before."""
        self._ready_to_consume()
        if self._was_run:
            raise ClosedError("run() was called before, and a consumer runs once; make another one")
        self._was_run = True
        self._choose_max_in_flight(concurrency)
        allowed = self._steer().max_in_flight
        if allowed < concurrency:
            self._log.warning(
                "%s: %d messages at a time are to be handled, but max_in_flight is %d",
                self.name,
                concurrency,
                allowed,
            )

    def _choose_max_in_flight(self, count: int) -> None:
        """Set how many messages may be in flight, unless the user chose a number."""
        flow = self._steer()
        if not flow.is_max_in_flight_chosen:
            flow.choose_max_in_flight(max(1, count))

    def take_waiting(self, count_max: int) -> list[Message]:
        """Up to this many messages that are already here; callable from any thread."""
        inbox = self._inbox
        return inbox.take(count_max) if inbox is not None and not inbox.is_stopped else []

    async def take(self, count_max: int, timeout_s: float | None = None) -> list[Message]:
        """Up to this many messages as soon as there is one; an empty list after `timeout_s`, or at the end."""
        inbox = self._ready_to_consume()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not inbox.is_stopped:
                    if messages := inbox.take(count_max):
                        return messages
                    await inbox.wait_for(1)
        return []

    async def batches(
        self, max_messages: int = 100, max_wait_s: float = 1.0
    ) -> AsyncIterator[Batch]:
        """Yield lists of up to `max_messages`; a shorter one after `max_wait_s`, or if no more may be in flight."""
        inbox = self._ready_to_consume()
        self._choose_max_in_flight(max_messages)
        while await self._wait_many(inbox, max_messages, max_wait_s):
            if messages := inbox.take(max_messages):
                yield Batch(messages)

    async def arrays(
        self, max_messages: int = 10_000, max_wait_s: float = 1.0
    ) -> AsyncIterator["ArrayBatch"]:
        """Like `batches`, as numpy arrays. A consumer that has begun this way cannot switch to another."""
        inbox = self._ready_to_consume()
        load_array_batch("arrays()")  # what is missing is said before anything is taken
        self._choose_max_in_flight(max_messages)
        inbox.gather_columns(max_messages)
        while await self._wait_many(inbox, max_messages, max_wait_s):
            if taken := inbox.take_columns():
                yield self._arrays_of(taken)

    def _arrays_of(self, taken: Taken) -> "ArrayBatch":
        batch = load_array_batch("arrays()")(taken, self._batches.discard)
        self._batches.add(batch)
        return batch

    async def _wait_many(self, inbox: MessageQueue, count_max: int, wait_s: float) -> bool:
        """Wait until there are messages; False = the end."""
        await inbox.wait_for(1)
        count = max(1, min(count_max, self._steer().deliverable(len(inbox))))
        if wait_s > 0 and len(inbox) < count and not inbox.is_stopped:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await inbox.wait_for(count)
        return not inbox.is_stopped

    # -- while it runs

    def set_max_in_flight(self, count: int) -> None:
        """Change it from here on; 0 stops deliveries."""
        self._ready()
        if count < 0:
            raise OptionsError(f"max_in_flight is {count}; it is 0 or more")
        self._steer().set_max_in_flight(count)

    def pause(self) -> None:
        """Stop deliveries until `resume`; messages in flight, or waiting here, can still be handled.

        If called before the start, the consumer starts paused.
        """
        self._is_paused = True
        if self._flow is not None:
            self._ready()
            self._flow.pause()

    def resume(self) -> None:
        """Deliver again, as before `pause`."""
        self._is_paused = False
        if self._flow is not None:
            self._ready()
            self._flow.resume()

    @property
    def is_paused(self) -> bool:
        """Whether `pause` was called, without a `resume` since."""
        return self._is_paused

    @property
    def is_starved(self) -> bool:
        """Whether a connection has nearly as many messages in flight as it may have: time to finish a batch."""
        self._ready()
        return self._steer().is_starved()

    def stats(self) -> ConsumerStats:
        """Counts so far, and the current state."""
        return consumer_stats(
            self._ready(),
            self._steer(),
            self._nodes.reconnectors,
            self.failures.given_up,
            self.failures.moved,
        )
