"""Consuming a channel: one message at a time, by a handler, in batches, or as numpy arrays.

A message that was received is finished, requeued, or handed back when the consumer stops; one whose connection broke is
delivered again by nsqd, and its `finish` returns False.
"""

import asyncio
import inspect
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from nsqfast._ext.columns import Taken
from nsqfast._ext.inbox import Inbox, Intake, Message
from nsqfast.client.config import Config, milliseconds, seconds
from nsqfast.client.connection import dial, make_consumer_link, prepare
from nsqfast.client.discovery import Discovery, poll_pause_s
from nsqfast.client.flow import Flow, Lane
from nsqfast.client.keeper import Keeper
from nsqfast.client.message import Batch
from nsqfast.client.stats import ConsumerStats, connection_stats
from nsqfast.errors import ClosedError, ConnectError, OptionsError, RefusedError
from nsqfast.names import is_valid_name

if TYPE_CHECKING:
    from nsqfast.client.batch import ArrayBatch

log = logging.getLogger("nsqfast.client")

Handler = Callable[[Message], Awaitable[object] | object]
ChooseNodes = Callable[[list[str]], Iterable[str]]

HANDLER_GRACE_S = 30.0
CLOSE_WAIT_TIMEOUT_S = 5.0
STARVED = 0.85
TOUCH_IDLE_S = 30.0


class Consumer:
    """`nsqd` are addresses to stay connected to, `nsqlookupd` those to ask for them; one or both.

    auto_touch: what is in flight is touched before its time is up, for as long as it is not answered.
    giving_up: called with a message that was delivered more than `max_attempts` times, before it is finished; what
    it raises requeues the message instead.
    choose_nodes: called with the addresses that an nsqlookupd listed; those it returns are connected to. It may leave
    out some (another zone) or put others in their place (a tunnel). If it raises, that answer does not count.
    """

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
    ) -> None:
        for kind, name in (("topic", topic), ("channel", channel)):
            if not is_valid_name(name):
                raise OptionsError(f"invalid {kind} name {name!r}")
        self._direct = [nsqd] if isinstance(nsqd, str) else list(nsqd)
        lookups = [nsqlookupd] if isinstance(nsqlookupd, str) else list(nsqlookupd)
        if not self._direct and not lookups:
            raise OptionsError("a consumer needs addresses of nsqd or of nsqlookupd")
        self._topic, self._channel = topic, channel
        self._config = config or Config()
        self._context = prepare(self._direct, self._config)
        self._discovery = Discovery(lookups, topic, self._config) if lookups else None
        self._choose_nodes = choose_nodes
        self._auto_touch = auto_touch
        self._giving_up = giving_up
        self._keepers: dict[str, Keeper] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._batches: list[ArrayBatch] = []
        self._poll_now = asyncio.Event()
        self._given_up = 0
        self._flow: Flow | None = None
        self._inbox: Inbox | None = None
        self._stop_task: asyncio.Task[None] | None = None

    # -- beginning and end

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Try each nsqd once, and poll once; what fails is tried on and on. RefusedError if nsqd will not have us."""
        if self._inbox is not None:
            raise ClosedError("the consumer was started before")
        self._flow = Flow(self._config)
        self._inbox = Inbox(
            asyncio.get_running_loop(),
            self,
            self._config.max_attempts,
            milliseconds(self._config.default_requeue_delay),
            milliseconds(self._config.max_requeue_delay),
        )
        self._flow.bind(self._inbox)
        try:
            await self._first_tries()
        except BaseException:
            await self.stop()
            raise

    async def _first_tries(self) -> None:
        for address in self._direct:
            self._keepers[address] = Keeper(address, self, self._config)
        if self._discovery is not None:
            polled = self._spawn(self._poll(self._discovery))
            # A dead nsqlookupd is not waited for; what it would say comes when it comes.
            await asyncio.wait([polled], timeout=seconds(self._config.dial_timeout))
            self._spawn(self._poll_on(self._discovery, polled))
        if self._keepers:
            await asyncio.wait([keeper.tried for keeper in self._keepers.values()])
        if self._auto_touch:
            self._spawn(self._touch_on())
        keepers = self._keepers.values()
        refusals = [keeper.error for keeper in keepers if isinstance(keeper.error, RefusedError)]
        if refusals and not any(keeper.link for keeper in keepers):
            raise refusals[0]

    def request_stop(self) -> None:
        """Have iterators and `run` end; for a signal handler. What was not taken is handed back when they have."""
        self._ready().stop()

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take nothing more, wait up to `grace_s` for answers to what is in flight, hand back the rest, hang up."""
        if self._inbox is None:
            return
        if self._stop_task is None:
            self._stop_task = asyncio.create_task(self._stop(self._inbox, grace_s))
        await asyncio.shield(self._stop_task)

    async def _stop(self, inbox: Inbox, grace_s: float) -> None:
        assert self._flow is not None
        inbox.stop()
        self._flow.close()
        for task in self._tasks:
            task.cancel()
        links = [lane.link for lane in self._flow.lanes if lane.link.is_open]
        goodbyes = [link.leave() for link in links]
        for goodbye in goodbyes:  # a connection may break instead of answering
            goodbye.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        # Behind CLS: what is handed back is not to come here again.
        for message in inbox.take(len(inbox)):
            message.requeue(0, backoff=False)
        while taken := inbox.take_columns():
            self._arrays_of(taken).requeue()
        if grace_s > 0:
            await self._flow.wait_idle(grace_s)
        for task in self._workers:
            task.cancel()
        await asyncio.gather(*self._workers, *self._tasks, return_exceptions=True)
        for batch in self._batches:
            batch.requeue()
        for link in links:
            link.hand_back()
        if goodbyes:
            await asyncio.wait(goodbyes, timeout=CLOSE_WAIT_TIMEOUT_S)
        await asyncio.gather(*[keeper.stop() for keeper in self._keepers.values()])
        if self._discovery is not None:
            await self._discovery.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _ready(self) -> Inbox:
        if self._inbox is None:
            raise ClosedError("the consumer was not started: `async with Consumer(...)`")
        return self._inbox

    # -- connections

    async def open(self, address: str, on_closed: Callable[[Any], None]) -> Intake:
        """Used by the keepers."""
        assert self._flow is not None
        flow = self._flow

        def closed(link: Intake) -> None:
            flow.remove(link)
            on_closed(link)

        make = make_consumer_link(self._ready(), closed)
        link, features = await dial(address, self._config, self._context, make)
        try:
            answer = await link.ask(f"SUB {self._topic} {self._channel}\n".encode())
        except asyncio.CancelledError:
            link.fail(ConnectError("given up"))
            raise
        if answer != b"OK":
            link.fail(ConnectError(f"{answer[:60]!r} instead of OK to SUB"))
        timeout_s = features.msg_timeout_ms / 1000
        now_ns = time.monotonic_ns()
        flow.add(Lane(link, address, features.max_rdy_count, timeout_s, now_ns))
        return link

    def on_trouble(self, keeper: Keeper, pause_s: float) -> None:
        """Used by the keepers."""
        where = f"{self._topic}/{self._channel} {keeper.address}"
        log.warning("%s: %s; again in %.1f s", where, keeper.error, pause_s)
        self._poll_now.set()

    async def _poll_on(self, discovery: Discovery, polled: "asyncio.Task[None]") -> None:
        while True:
            try:
                await polled
            except Exception:
                log.exception("%s: a poll failed", self._topic)
            self._poll_now.clear()
            pause_s = poll_pause_s(self._config)
            try:
                # A connection broke: nsqlookupd may know where its nsqd is now. Not all consumers ask at once.
                await asyncio.wait_for(self._poll_now.wait(), pause_s)
                await asyncio.sleep(min(pause_s, random.uniform(0.5, 1)))  # noqa: S311 - no secret
            except TimeoutError:
                pass
            polled = self._spawn(self._poll(discovery))

    async def _poll(self, discovery: Discovery) -> None:
        listed: set[str] = set()
        failures = 0
        async for answer in discovery.poll():
            if isinstance(answer, ConnectError):
                failures += 1
                log.warning("%s: nsqlookupd: %s", self._topic, answer)
                continue
            try:
                chosen = set(self._choose_nodes(sorted(answer)))
            except Exception:
                failures += 1
                log.exception("%s: choose_nodes failed", self._topic)
                continue
            listed |= chosen
            for address in chosen - self._keepers.keys():
                self._keepers[address] = Keeper(address, self, self._config)
        if failures == 0:
            await self._forget(listed)

    async def _forget(self, listed: set[str]) -> None:
        """An address that nobody lists is given up once its connection is lost, not before."""
        for address in self._keepers.keys() - listed - set(self._direct):
            if self._keepers[address].link is None:
                await self._keepers.pop(address).stop()

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

    def on_late(self, _link: Intake, text: str) -> None:
        """nsqd had given the message to somebody else by then."""
        log.warning("%s/%s: an answer came too late: %s", self._topic, self._channel, text)

    def on_hopeless(self, message: Message) -> None:
        """A message has had all its attempts."""
        self._given_up += 1
        self._spawn(self._give_up(message))

    async def _give_up(self, message: Message) -> None:
        where = f"{self._topic}/{self._channel}"
        log.warning(
            "%s: giving up %s after %d attempts", where, message.id.decode(), message.attempts - 1
        )
        try:
            if self._giving_up is not None:
                await _called(self._giving_up, message)
        except Exception:
            log.exception("%s: giving up %s failed, it is requeued", where, message.id.decode())
            message.requeue()
        else:
            message.discard()

    def _steer(self) -> Flow:
        assert self._flow is not None
        return self._flow

    # -- ways to consume

    def __aiter__(self) -> Inbox:
        return self._ready()

    async def run(
        self, handler: Handler, concurrency: int = 1, grace_s: float = HANDLER_GRACE_S
    ) -> None:
        """Call `handler` with each message, so many at a time, until `request_stop` or `stop`, or cancelled.

        Its return finishes the message, an exception requeues it with backoff; unless it was answered already, or
        kept (`message.keep`). A handler that is no coroutine function runs on the event loop: let it not block.
        At a stop, handlers have `grace_s` to end.
        """
        if self._inbox is None:
            await self.start()
        loop = asyncio.get_running_loop()
        self._workers = [loop.create_task(self._work(handler)) for _ in range(concurrency)]
        try:
            await self._until_stopped()
        finally:
            await self.stop(grace_s)

    async def _until_stopped(self) -> None:
        ended = asyncio.ensure_future(self._ready().wait_stopped())
        await asyncio.wait([ended, *self._workers], return_when=asyncio.FIRST_COMPLETED)
        for worker in self._workers:
            if worker.done() and not worker.cancelled() and (error := worker.exception()):
                raise error

    async def _work(self, handler: Handler) -> None:
        async for message in self._ready():
            try:
                result = handler(message)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.warning("%s/%s: the handler failed", self._topic, self._channel, exc_info=True)
                message.requeue()
            else:
                if not message.is_kept:
                    message.finish()

    async def take(self, count_max: int, timeout_s: float | None = None) -> list[Message]:
        """Up to so many messages as soon as there is one; none after `timeout_s`, or at the end."""
        inbox = self._ready()
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not inbox.is_stopped:
            if messages := inbox.take(count_max):
                return messages
            rest_s = None if deadline_s is None else deadline_s - time.monotonic()
            if rest_s is not None and rest_s <= 0:
                break
            await asyncio.wait([inbox.wait_for(1)], timeout=rest_s)
        return []

    async def batches(
        self, max_messages: int = 100, max_wait_s: float = 1.0
    ) -> AsyncIterator[Batch]:
        """Lists of up to `max_messages`; a shorter one after `max_wait_s`, or if no more may be in flight."""
        inbox = self._ready()
        while await self._wait_many(inbox, max_messages, max_wait_s):
            if messages := inbox.take(max_messages):
                yield Batch(messages)

    async def arrays(
        self, max_messages: int = 10_000, max_wait_s: float = 1.0
    ) -> AsyncIterator["ArrayBatch"]:
        """The same as numpy arrays. A consumer that has begun so gives nothing else any more."""
        inbox = self._ready()
        inbox.gather_columns(max_messages)
        while await self._wait_many(inbox, max_messages, max_wait_s):
            if taken := inbox.take_columns():
                batch = self._arrays_of(taken)
                self._batches = [*[old for old in self._batches if not old.is_answered], batch]
                yield batch

    @staticmethod
    def _arrays_of(taken: Taken) -> "ArrayBatch":
        from nsqfast.client.batch import ArrayBatch  # numpy takes a moment

        return ArrayBatch(taken)

    async def _wait_many(self, inbox: Inbox, count_max: int, wait_s: float) -> bool:
        """Whether there is anything; False = the end."""
        await inbox.wait_for(1)
        count = max(1, min(count_max, self._steer().max_in_flight))
        if wait_s > 0 and len(inbox) < count and not inbox.is_stopped:
            await asyncio.wait([inbox.wait_for(count)], timeout=wait_s)
        return not inbox.is_stopped

    # -- while it runs

    async def _touch_on(self) -> None:
        """Everything is touched before half of its time is over."""
        while True:
            lanes = self._steer().lanes
            pause_s = min([lane.msg_timeout_s for lane in lanes], default=TOUCH_IDLE_S) / 3
            await asyncio.sleep(pause_s)
            before_ns = time.monotonic_ns() - int(pause_s * 0.5e9)
            for lane in self._steer().lanes:
                lane.link.touch_before(before_ns)
            for batch in self._batches:
                batch.touch()

    def set_max_in_flight(self, count: int) -> None:
        """Change it from here on; 0 pauses."""
        self._ready()
        self._steer().set_max_in_flight(count)

    @property
    def is_starved(self) -> bool:
        """Whether a connection has as good as all in flight that it may have: time for a batch to be finished."""
        return any(
            lane.link.in_flight > 0 and lane.link.in_flight >= int(STARVED * lane.link.rdy)
            for lane in self._steer().lanes
        )

    def stats(self) -> ConsumerStats:
        """What was done and what is under way."""
        inbox, flow = self._ready(), self._steer()
        lanes = {lane.address: lane.link for lane in flow.lanes}
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
            connects=sum(keeper.connects for keeper in self._keepers.values()),
            connections={
                address: connection_stats(keeper, lanes.get(address))
                for address, keeper in self._keepers.items()
            },
        )


async def _called(handler: Handler, message: Message) -> None:
    result = handler(message)
    if inspect.isawaitable(result):
        await result
