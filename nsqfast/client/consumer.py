"""Consuming a channel: one message at a time, by a handler, in batches, or as numpy arrays.

A message that was received is finished, requeued, or handed back when the consumer stops; one whose connection broke is
delivered again by nsqd, and its `finish` returns False.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from nsqfast._ext.client.columns import Taken
from nsqfast._ext.client.consume_connection import ConsumeConnection, Message, MessageQueue
from nsqfast.client.config import Config, milliseconds
from nsqfast.client.connection import as_list, dial, make_consumer_connection, prepare, subscribe
from nsqfast.client.discovery import Discovery
from nsqfast.client.flow import CLOSE_WAIT_TIMEOUT_S, Flow, Subscription
from nsqfast.client.lifetime import Logger, Resource, open_resources
from nsqfast.client.message import Batch, load_array_batch
from nsqfast.client.middleware import Middleware, around_handler
from nsqfast.client.nodes import ChooseNodes, Nodes
from nsqfast.client.reconnector import Opened, Reconnector
from nsqfast.client.stats import ConsumerStats, connection_stats
from nsqfast.client.workers import Handler, Workers, check_handler, give_up
from nsqfast.errors import ClosedError, OptionsError
from nsqfast.names import is_valid_name

if TYPE_CHECKING:
    from nsqfast.client.batch import ArrayBatch

HANDLER_GRACE_S = 30.0


class Consumer(Resource):
    """`nsqd` are addresses to stay connected to, `nsqlookupd` those to ask for them; one or both, a text or several.

    auto_touch: what is in flight is touched before its time is up, for as long as it is not answered.
    giving_up: called with a message that was delivered more than `max_attempts` times, before it is finished; what
    it raises requeues the message instead.
    choose_nodes: called with the addresses that an nsqlookupd listed; those it returns are connected to. It may leave
    out some (another zone) or put others in their place (a tunnel). If it raises, that answer does not count.
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
        giving_up: Handler | None = None,
        choose_nodes: ChooseNodes = list,
        middleware: Sequence[Middleware] = (),
        logger: Logger | None = None,
    ) -> None:
        super().__init__(logger)
        for word, name in (("topic", topic), ("channel", channel)):
            if not is_valid_name(name):
                raise OptionsError(f"invalid {word} name {name!r}")
        direct, lookups = as_list(nsqd), as_list(nsqlookupd)
        if not direct and not lookups:
            raise OptionsError("a consumer needs addresses of nsqd or of nsqlookupd")
        self._topic, self._channel = topic, channel
        self.name = f"{topic}/{channel}"
        self._config = config or Config()
        self._context = prepare(direct, self._config, self._log)
        discovery = Discovery(lookups, topic, self._config, self._log)
        self._nodes = Nodes(self.name, direct, discovery, choose_nodes, self._config, self._log)
        self._auto_touch = auto_touch
        self._giving_up = giving_up
        self._middleware = middleware
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workers: Workers | None = None
        self._was_run = False
        self._batches: set[ArrayBatch] = set()  # with rows that are not answered
        self._given_up = 0
        self._goodbyes: list[asyncio.Future[bytes]] = []
        self._flow: Flow | None = None
        self._inbox: MessageQueue | None = None
        self._is_stop_requested = False
        self._begins_paused = False
        self._stop_task: asyncio.Task[None] | None = None

    # -- beginning and end

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Return when one nsqd is connected, or when all were tried in vain; what fails is tried on and on.

        RefusedError, WrongPeerError: no nsqd will have us, or what was given is none.
        """
        self._begin()
        self._warn_of_another()
        self._flow = Flow(self._config, is_held=self._begins_paused)
        self._inbox = MessageQueue(
            asyncio.get_running_loop(),
            self,
            self._config.max_attempts,
            milliseconds(self._config.default_requeue_delay),
            milliseconds(self._config.max_requeue_delay),
        )
        self._flow.bind(self._inbox)
        if self._is_stop_requested:
            self._leave()
            return
        if self._auto_touch:
            self._spawn(self._flow.touch_on(lambda: self._batches))
        try:
            await self._nodes.start(self, self._inbox.wait_stopped())
        except BaseException:
            await self.stop()
            raise

    def _warn_of_another(self) -> None:
        """In a notebook whose cell is run again the consumer of the last time may still be there, unseen."""
        others = [one for one in open_resources() if isinstance(one, Consumer) and one is not self]
        if hasattr(sys, "ps1") and any(other.name == self.name for other in others):
            self._log.warning(
                "%s: another consumer of this program is still open and gets a part of the messages; stop it",
                self.name,
            )

    def request_stop(self) -> None:
        """Have iterators and `run` end, or not begin; at any time, in any thread, also in a signal handler.

        Nothing more is delivered, and what was not taken is handed back.
        """
        self._is_stop_requested = True
        if self._inbox is not None and self._loop is not None and not self._why_unusable:
            self._inbox.end()
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        """Have nothing more delivered, and hand back what nobody took; answers can still be given."""
        assert self._inbox is not None
        assert self._flow is not None
        inbox = self._inbox
        inbox.stop()
        self._nodes.cancel()
        self._goodbyes += self._flow.leave()
        # Behind CLS: what is handed back is not to come here again.
        for message in inbox.take(len(inbox)):
            message.requeue(0, backoff=False)
        while taken := inbox.take_columns():
            self._arrays_of(taken).requeue()

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take nothing more, wait up to `grace_s` for answers to what is in flight, hand back the rest, hang up."""
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
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for batch in list(self._batches):
            batch.requeue()
        for subscription in self._flow.subscriptions:
            subscription.connection.hand_back()
        if self._goodbyes:
            await asyncio.wait(self._goodbyes, timeout=CLOSE_WAIT_TIMEOUT_S)
        await self._nodes.stop()
        self._finish()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _ready(self) -> MessageQueue:
        """For what can be asked of a consumer that has stopped, too."""
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
            on_closed(connection)

        make = make_consumer_connection(self._ready(), closed)
        connection, features = await dial(address, self._config, self._context, make)
        connection.address = address
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
        self._left_behind(self.name)

    async def add_nsqd(self, address: str) -> None:
        """Connect to this one, too; returns after the first attempt. RefusedError: it will not have us."""
        self._ready_to_consume()
        await self._nodes.add_nsqd(address)

    async def drop_nsqd(self, address: str, grace_s: float = HANDLER_GRACE_S) -> None:
        """Take nothing more from this one, wait up to `grace_s` for answers, hand back the rest, hang up.

        OptionsError: it was not given, but found through nsqlookupd, or is not known.
        """
        self._ready_to_consume()
        self._nodes.check_direct(address)
        await self._steer().retire(address, grace_s)
        await self._nodes.forget(address)

    async def add_nsqlookupd(self, address: str) -> None:
        """Ask this one, too, beginning now."""
        self._ready_to_consume()
        self._nodes.add_nsqlookupd(address)

    async def drop_nsqlookupd(self, address: str) -> None:
        """Ask this one no more; the nsqd that it listed stay connected for as long as that lasts."""
        self._ready_to_consume()
        self._nodes.drop_nsqlookupd(address)

    # -- what the inbox tells

    def on_success(self) -> None:
        """A message was finished while in backoff."""
        self._steer().act(self._steer().backoff.success())

    def on_failure(self) -> None:
        """A message was requeued."""
        self._steer().act(self._steer().backoff.failure())

    def on_neutral(self) -> None:
        """A message was requeued without backoff, or given up, while in backoff."""
        self._steer().act(self._steer().backoff.neutral())

    def on_room(self) -> None:
        """A connection that had too much in flight has less."""
        self._steer().on_room()

    def on_late(self, _connection: ConsumeConnection, text: str) -> None:
        """nsqd had given the message to somebody else by then."""
        self._log.warning("%s: an answer came too late: %s", self.name, text)

    def on_hopeless(self, message: Message) -> None:
        """A message has had all its attempts."""
        self._given_up += 1
        self._spawn(give_up(message, self._giving_up, self._log, self.name))

    def _steer(self) -> Flow:
        assert self._flow is not None
        return self._flow

    # -- ways to consume

    def __aiter__(self) -> MessageQueue:
        return self._ready_to_consume()

    async def run(
        self, handler: Handler, concurrency: int = 1, grace_s: float = HANDLER_GRACE_S
    ) -> None:
        """Call `handler` with each message, so many at a time, until `request_stop` or `stop`, or cancelled.

        Its return finishes the message, an exception requeues it with backoff; unless it was answered already, or
        kept (`message.keep`). A handler that is no coroutine function runs on the event loop: let it not block.
        At a stop, handlers have `grace_s` to end. `max_in_flight`, if it was not given, is the concurrency.
        """
        check_handler(handler, concurrency)
        if self._inbox is None:
            await self.start()
        inbox = self._ready_to_consume()
        self.prepare_run(concurrency)
        around = around_handler(self._middleware, self._topic, self._channel, handler)
        self._workers = Workers(around, concurrency, inbox, self._log, self.name)
        try:
            await self._workers.wait()
        finally:
            await self.stop(grace_s)

    def prepare_run(self, concurrency: int) -> None:
        """So many handlers are about to work at a time; ClosedError if some did before."""
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
        """So many are wanted at a time; that is what may be in flight, unless somebody said otherwise."""
        flow = self._steer()
        if not flow.is_max_in_flight_chosen:
            flow.choose_max_in_flight(max(1, count))

    def take_waiting(self, count_max: int) -> list[Message]:
        """Up to so many messages that are here already; any thread may ask."""
        inbox = self._inbox
        return inbox.take(count_max) if inbox is not None and not inbox.is_stopped else []

    async def take(self, count_max: int, timeout_s: float | None = None) -> list[Message]:
        """Up to so many messages as soon as there is one; none after `timeout_s`, or at the end."""
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
        """Lists of up to `max_messages`; a shorter one after `max_wait_s`, or if no more may be in flight."""
        inbox = self._ready_to_consume()
        self._choose_max_in_flight(max_messages)
        while await self._wait_many(inbox, max_messages, max_wait_s):
            if messages := inbox.take(max_messages):
                yield Batch(messages)

    async def arrays(
        self, max_messages: int = 10_000, max_wait_s: float = 1.0
    ) -> AsyncIterator["ArrayBatch"]:
        """The same as numpy arrays. A consumer that has begun so gives nothing else any more."""
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
        """Whether there is anything; False = the end."""
        await inbox.wait_for(1)
        count = max(1, min(count_max, self._steer().deliverable(len(inbox))))
        if wait_s > 0 and len(inbox) < count and not inbox.is_stopped:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await inbox.wait_for(count)
        return not inbox.is_stopped

    # -- while it runs

    def set_max_in_flight(self, count: int) -> None:
        """Change it from here on; 0 has nothing delivered."""
        self._ready()
        if count < 0:
            raise OptionsError(f"max_in_flight is {count}; it is 0 or more")
        self._steer().set_max_in_flight(count)

    def pause(self) -> None:
        """Have nothing more delivered until `resume`; what is in flight, and what waits here, can be handled.

        Before the start: it begins so.
        """
        if self._flow is None:
            self._begins_paused = True
        else:
            self._ready()
            self._flow.pause()

    def resume(self) -> None:
        """Deliver again, as before `pause`."""
        if self._flow is None:
            self._begins_paused = False
        else:
            self._ready()
            self._flow.resume()

    @property
    def is_paused(self) -> bool:
        """Whether `pause` was called, and `resume` not since."""
        return self._begins_paused if self._flow is None else self._flow.is_held

    @property
    def is_starved(self) -> bool:
        """Whether a connection has as good as all in flight that it may have: time for a batch to be finished."""
        self._ready()
        return self._steer().is_starved()

    def stats(self) -> ConsumerStats:
        """What was done and what is under way."""
        inbox, flow = self._ready(), self._steer()
        subscriptions = {
            subscription.address: subscription.connection for subscription in flow.subscriptions
        }
        return ConsumerStats(
            received=inbox.received,
            finished=inbox.finished,
            requeued=inbox.requeued,
            touched=inbox.touched,
            given_up=self._given_up,
            dropped=inbox.dropped,
            waiting=len(inbox),
            in_flight=flow.in_flight(),
            backoff_level=flow.backoff.level,
            connects=sum(reconnector.connects for reconnector in self._nodes.reconnectors.values()),
            connections={
                address: connection_stats(reconnector, subscriptions.get(address))
                for address, reconnector in self._nodes.reconnectors.items()
            },
        )
