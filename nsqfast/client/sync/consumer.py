"""Consume in program threads."""

import asyncio
import contextlib
import inspect
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

import nsqfast.client.consumer as asynchronous
from nsqfast._ext.client.consume_connection import Message as AsyncMessage
from nsqfast.client.backoff import BackoffRule
from nsqfast.client.callbacks import check_handler, is_coroutine_function
from nsqfast.client.config import Config
from nsqfast.client.failures import OnFailure
from nsqfast.client.lifetime import Logger, stopped_by_signals
from nsqfast.client.middleware import Middleware, around_handling
from nsqfast.client.payload import Decoder, choose_call
from nsqfast.client.stats import ConsumerStats
from nsqfast.client.sync.loop_thread import LoopThread
from nsqfast.client.sync.message import ArrayBatch, Batch, Message
from nsqfast.client.sync.owner import Owner
from nsqfast.errors import ClosedError, OptionsError

if TYPE_CHECKING:
    import typing_extensions

    Value = typing_extensions.TypeVar("Value", default=Message)
else:
    Value = TypeVar("Value")
T = TypeVar("T")

# None and nothing else, so that a type checker refuses coroutine functions.
Handler = Callable[[Message], None]
ValueHandler = Callable[[T], None] | Callable[[T, Message], None]
ChooseNodes = Callable[[list[str]], Iterable[str]]

NOT_AWAITED = "nsqfast.client.sync runs no coroutines, as {} {!r} needs: write `def`, or use nsqfast.client.Consumer"


class Consumer(Owner, Generic[Value]):
    """See nsqfast.client.Consumer. Connects at the first use; its end hands back unanswered messages.

    `giving_up` and `choose_nodes` are called in a thread of their own, which may use this consumer; `on_failure` is
    called in the thread of the handler.
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
        dead_letter_topic: str | None = None,
        on_failure: OnFailure | None = None,
        backoff: BackoffRule = "share",
        choose_nodes: ChooseNodes | None = None,
        decoder: Decoder[Value] | None = None,
        middleware: Sequence[Middleware] = (),
        logger: Logger | None = None,
    ) -> None:
        owner = weakref.ref(self)  # the loop's references must not keep an unused consumer alive

        async def give_up(message: AsyncMessage) -> None:
            assert giving_up is not None
            loop_thread = _loop_thread_of(owner)
            result: object = await loop_thread.call_back(giving_up, Message(message, loop_thread))
            _check_result("giving_up", result)

        async def choose(addresses: list[str]) -> Iterable[str]:
            assert choose_nodes is not None
            return await _loop_thread_of(owner).call_back(choose_nodes, addresses)

        def build() -> asynchronous.Consumer:
            return asynchronous.Consumer(
                topic,
                channel,
                nsqd=nsqd,
                nsqlookupd=nsqlookupd,
                config=config,
                auto_touch=auto_touch,
                giving_up=give_up if giving_up is not None else None,
                dead_letter_topic=dead_letter_topic,
                on_failure=on_failure,
                backoff=backoff,
                choose_nodes=choose if choose_nodes is not None else list,
                logger=logger,
            )

        self._build = build
        self._topic, self._channel = topic, channel
        self._decoder = decoder
        self._middleware = middleware
        self._is_stop_requested = False
        super().__init__(logger)
        _check_sync("giving_up", giving_up)

    @property
    def _name(self) -> str:
        return self._consumer.name

    def __enter__(self) -> Self:
        self._ready()
        return self

    def _make(self) -> None:
        before: asynchronous.Consumer | None = getattr(self, "_consumer", None)
        self._consumer = self._build()
        if before is not None and before.is_paused:
            self._consumer.pause()
        self._last_stats: ConsumerStats | None = None

    def _before_start(self) -> None:
        if self._is_stop_requested:
            self._consumer.request_stop()

    def _after_fork(self, loop_thread: LoopThread) -> None:  # noqa: ARG002 - another owner needs it
        raise ClosedError("the consumer was made before a fork; make one in the child")

    def _start(self) -> Coroutine[Any, Any, None]:
        return self._consumer.start()

    async def _end(self) -> None:
        await self._consumer.stop()
        with contextlib.suppress(ClosedError):  # it had not begun
            self._last_stats = self._consumer.stats()

    # -- ways to consume

    def __iter__(self) -> Iterator[Message]:
        loop_thread = self._ready()
        while messages := self._take(loop_thread, 1, None):
            yield Message(messages[0], loop_thread)

    def get(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None after `timeout_s`, or at the end."""
        messages = self.take(1, timeout_s)
        return messages[0] if messages else None

    def take(self, count_max: int, timeout_s: float | None = None) -> list[Message]:
        """Up to this many messages as soon as there is one; an empty list after `timeout_s`, or at the end."""
        loop_thread = self._ready()
        found = self._take(loop_thread, count_max, timeout_s)
        return [Message(message, loop_thread) for message in found]

    def _take(
        self, loop_thread: LoopThread, count_max: int, timeout_s: float | None
    ) -> list[AsyncMessage]:
        """Waiting messages are taken directly; the loop's thread is needed only to wait."""
        if messages := self._consumer.take_waiting(count_max):
            return messages
        try:
            return loop_thread.call(self._consumer.take(count_max, timeout_s))
        except ClosedError:  # closed by another thread
            return []

    def batches(self, max_messages: int = 100, max_wait_s: float = 1.0) -> Iterator[Batch]:
        """Yield lists of up to `max_messages`; a shorter one after `max_wait_s`, or if no more may be in flight."""
        loop_thread = self._ready()
        found = self._consumer.batches(max_messages, max_wait_s)
        while (batch := loop_thread.call(_next(found))) is not None:
            yield Batch([Message(message, loop_thread) for message in batch.messages])

    def arrays(self, max_messages: int = 10_000, max_wait_s: float = 1.0) -> Iterator[ArrayBatch]:
        """Like `batches`, as numpy arrays. A consumer that has begun this way cannot switch to another."""
        loop_thread = self._ready()
        found = self._consumer.arrays(max_messages, max_wait_s)
        while (batch := loop_thread.call(_next(found))) is not None:
            yield ArrayBatch(batch, loop_thread)

    @overload
    def run(
        self,
        handler: ValueHandler[Value],
        concurrency: int = 1,
        grace_s: float = asynchronous.HANDLER_GRACE_S,
        *,
        stop_on_signals: bool | None = None,
    ) -> None: ...
    @overload
    def run(
        self,
        handler: ValueHandler[T],
        concurrency: int = 1,
        grace_s: float = asynchronous.HANDLER_GRACE_S,
        *,
        type: type[T],
        stop_on_signals: bool | None = None,
    ) -> None: ...
    def run(
        self,
        handler: Callable[..., None],
        concurrency: int = 1,
        grace_s: float = asynchronous.HANDLER_GRACE_S,
        *,
        type: Any = None,
        stop_on_signals: bool | None = None,
    ) -> None:
        """Call `handler` with one message after the other until `request_stop` or a signal, in this thread or in
        `concurrency` others.

        Returning finishes the message, and an exception requeues it with backoff, unless it was already answered or
        kept (`message.keep`). With threads, handlers have `grace_s` to end at a stop. If `max_in_flight` was not given,
        it is the concurrency. type: call it with the body as this type instead, or with that and the message.
        stop_on_signals: whether SIGTERM and SIGINT stop it; None = in the main thread, where nobody else handles them.
        """
        _check_sync("handler", handler)
        handler = choose_call(handler, type, self._decoder)
        check_handler(handler, concurrency)
        with stopped_by_signals(self.request_stop, stop_on_signals):
            self._ask(lambda: self._consumer.prepare_run(concurrency))
            if concurrency == 1:
                self._work(handler)
            else:
                Threads(self, handler, concurrency).run(grace_s)

    def _work(self, handler: Callable[[Message], object]) -> None:
        for message in self:
            try:
                with around_handling(self._middleware, self._topic, self._channel, message):
                    _check_result("handler", handler(message))
            except _NotAwaitedError as error:
                # The end of the consumer hands it back, after CLS. Before that nsqd would deliver it here again, and
                # Go's may do so behind its answer to CLS, when nobody reads any more.
                raise OptionsError(str(error)) from None
            except (Exception, asyncio.CancelledError) as error:
                self._consumer.failures.note(message, error)
            else:
                if not (message.is_answered or message.is_kept):
                    message.finish()

    def _wait_stopped(self) -> None:
        """Wait until nothing more is given out."""

        async def wait() -> None:
            await aiter(self._consumer).wait_stopped()

        with contextlib.suppress(ClosedError):
            self._ready().call(wait())

    def _warn_of_left(self, count: int, grace_s: float) -> None:
        if count:
            self._log.warning(
                "%s: handlers that have not ended in %g s: %d", self._name, grace_s, count
            )

    def request_stop(self) -> None:
        """Make iterators and `run` end, or not begin; call it at any time, from any thread or signal handler."""
        # Take no lock and do not wait: a signal handler may have interrupted the holder of the lock.
        self._is_stop_requested = True
        loop_thread = self._loop_thread
        if loop_thread is not None and loop_thread.is_ours:
            loop_thread.post(self._consumer.request_stop)

    # -- while it runs

    def pause(self) -> None:
        """Stop deliveries until `resume`; messages in flight, or waiting here, can still be handled.

        If called before the first use, the consumer starts paused.
        """
        if self._loop_thread is None:
            self._consumer.pause()
        else:
            self._ask(self._consumer.pause)

    def resume(self) -> None:
        """Deliver again, as before `pause`."""
        if self._loop_thread is None:
            self._consumer.resume()
        else:
            self._ask(self._consumer.resume)

    @property
    def is_paused(self) -> bool:
        """Whether `pause` was called, without a `resume` since."""
        return self._consumer.is_paused

    def set_max_in_flight(self, count: int) -> None:
        """Change it from here on; 0 stops deliveries."""
        self._ask(lambda: self._consumer.set_max_in_flight(count))

    @property
    def is_starved(self) -> bool:
        """Whether a connection has nearly as many messages in flight as it may have: time to finish a batch."""
        return self._ask(lambda: self._consumer.is_starved)

    def add_nsqd(self, address: str) -> None:
        """Connect to this nsqd, too; returns after the first attempt. RefusedError: it refuses us."""
        self._ready().call(self._consumer.add_nsqd(address))

    def drop_nsqd(self, address: str, grace_s: float = asynchronous.HANDLER_GRACE_S) -> None:
        """Take no more messages from this nsqd, wait up to `grace_s` for answers, hand back the rest, disconnect."""
        self._ready().call(self._consumer.drop_nsqd(address, grace_s))

    def add_nsqlookupd(self, address: str) -> None:
        """Ask this nsqlookupd, too, starting now."""
        self._ready().call(self._consumer.add_nsqlookupd(address))

    def drop_nsqlookupd(self, address: str) -> None:
        """Ask this nsqlookupd no more; nsqd that it listed stay connected as long as their connections last."""
        self._ready().call(self._consumer.drop_nsqlookupd(address))

    def stats(self) -> ConsumerStats:
        """Counts so far, and the current state; after the end, the final counts."""
        return self._last_stats or self._ask(self._consumer.stats)


class _NotAwaitedError(Exception):
    """A function of the user's returned what only an event loop can run."""


def _check_result(word: str, result: object) -> None:
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise _NotAwaitedError(NOT_AWAITED.format(word, result))


def _check_sync(word: str, function: Any) -> None:
    """OptionsError: it would return a coroutine, and the message would be finished without it."""
    if function is not None and is_coroutine_function(function):
        raise OptionsError(NOT_AWAITED.format(word, function))


class Threads:
    """Threads that call a handler; one more thread waits for them."""

    def __init__(self, consumer: Consumer[Any], handler: Handler, count: int) -> None:
        self._consumer = consumer
        self._handler = handler
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"nsqfast handler {number}", daemon=True)
            for number in range(count)
        ]

    def run(self, grace_s: float) -> None:
        """Return when all have ended: the consumer stops, one of them fails, or this thread is interrupted."""
        try:
            for thread in self._threads:
                thread.start()
            self._consumer._wait_stopped()  # noqa: SLF001 - of this module
        except BaseException:
            self._consumer.request_stop()
            raise
        finally:
            self._join(grace_s)
        if self._error is not None:
            raise self._error

    def _join(self, grace_s: float) -> None:
        deadline_s = time.monotonic() + grace_s
        for thread in self._threads:
            if thread.ident is not None:  # it was started
                thread.join(max(0.0, deadline_s - time.monotonic()))
        self._consumer._warn_of_left(  # noqa: SLF001 - of this module
            sum(thread.is_alive() for thread in self._threads), grace_s
        )

    def _work(self) -> None:
        try:
            self._consumer._work(self._handler)  # noqa: SLF001 - of this module
        except BaseException as error:
            self._error = self._error or error
            self._consumer.request_stop()


def _loop_thread_of(owner: "weakref.ref[Consumer[Any]]") -> LoopThread:
    consumer = owner()
    loop_thread = None if consumer is None else consumer._loop_thread  # noqa: SLF001 - of this module
    if loop_thread is None:
        raise ClosedError("the consumer was left behind")
    return loop_thread


async def _next(found: AsyncIterator[T]) -> T | None:
    async for item in found:
        return item
    return None
