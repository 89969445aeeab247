"""An App: the channels that a process handles, what its handlers share, and its producer.

app = App(nsqd="127.0.0.1:4150")

@app.subscribe("orders", "billing", type=Order, concurrency=8)
async def bill(order: Order) -> None: ...

app.run()
"""

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast, overload

from nsqfast.app.page import (
    FAILED,
    NOT_CONNECTED,
    OK,
    STARTING,
    STOPPING,
    Health,
    Page,
    add_metrics,
    describe,
    write_registry,
)
from nsqfast.app.subscription import Call, ConsumerOptions, Subscription
from nsqfast.client.addresses import NSQD, addresses_or_environment
from nsqfast.client.callbacks import check_concurrency
from nsqfast.client.config import Config
from nsqfast.client.consumer import HANDLER_GRACE_S, Consumer
from nsqfast.client.envelope import Headed, encode_headed
from nsqfast.client.lifetime import Logger
from nsqfast.client.middleware import Middleware
from nsqfast.client.payload import Encoder, decoder_of, encode_value
from nsqfast.client.producer import Producer
from nsqfast.client.sync.loop_thread import new_event_loop
from nsqfast.errors import ClosedError, OptionsError
from nsqfast.program.signals import watch_signals

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., object])

log = logging.getLogger("nsqfast.app")

Lifespan = Callable[["App"], AbstractAsyncContextManager[Mapping[str, object] | None]]


class App:
    """Runs the handlers of several channels in one event loop, as often and as long as it is started.

    nsqd, nsqlookupd, config, logger: those of every consumer that has none of its own; it publishes to `nsqd`.
    encoder: makes bytes of what is published; by default bytes stay as they are, a str is UTF-8, the rest JSON.
    lifespan: called with the app at the start, returns an async context manager, which is left at the end. What it
    yields, a mapping or None, are the resources: handlers get them as parameters of these names.
    middleware: around each publish and each call of a handler, those of a subscription inside.
    envelope: bodies may have headers in front of them (nsqfast.client.envelope).
    """

    def __init__(
        self,
        *,
        nsqd: str | Sequence[str] = (),
        nsqlookupd: str | Sequence[str] = (),
        config: Config | None = None,
        encoder: Encoder[Any] = encode_value,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Middleware] = (),
        envelope: bool = False,
        logger: Logger | None = None,
    ) -> None:
        self._defaults: ConsumerOptions = {
            "nsqd": nsqd,
            "nsqlookupd": nsqlookupd,
            "config": config,
            "logger": logger,
        }
        self._log: Logger = logger or log
        self._encoder = encode_headed(encoder) if envelope else encoder
        self._lifespan = lifespan
        self._middleware = list(middleware)
        self._has_envelope = envelope
        self._subscriptions: list[Subscription] = []
        self._reset()

    def _reset(self) -> None:
        self._state = ""
        self._stack: AsyncExitStack | None = None
        self._producer: Producer[Any] | None = None
        self._consumers: list[Consumer[Any]] = []
        self._runs: list[asyncio.Task[None]] = []

    # -- what is handled

    @overload
    def subscribe(
        self,
        topic: str,
        channel: str,
        *,
        type: type[T],
        concurrency: int = 1,
        grace_s: float = HANDLER_GRACE_S,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[Callable[Concatenate[T, P], R]], Callable[Concatenate[T, P], R]]: ...
    @overload
    def subscribe(
        self,
        topic: str,
        channel: str,
        *,
        concurrency: int = 1,
        grace_s: float = HANDLER_GRACE_S,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[F], F]: ...
    def subscribe(
        self,
        topic: str,
        channel: str,
        *,
        type: Any = None,
        concurrency: int = 1,
        grace_s: float = HANDLER_GRACE_S,
        **options: Any,
    ) -> Callable[[Any], Any]:
        """Have the decorated function handle this channel: `concurrency` messages at a time, and `grace_s` at a stop.

        type: its first parameter is the body as this type; without one it is the message. A coroutine function runs on
        the event loop, a plain one in a thread, where it may block. Further parameters are resources by their names,
        `message`, and `headers`. Everything else is a keyword of nsqfast.client.Consumer.
        """
        if self._state:
            raise ClosedError("the app has started; subscribe before that")
        check_concurrency(concurrency)
        inspect.signature(Consumer).bind(topic, channel, **options)  # TypeError: no such keyword
        decoder = options.pop("decoder", None) if type is None else decoder_of(type)
        kept = cast("ConsumerOptions", options)

        def note(function: F) -> F:
            found = Subscription(topic, channel, function, decoder, concurrency, grace_s, kept)
            found.check()
            self._subscriptions.append(found)
            return function

        return note

    # -- publishing

    @property
    def _nsqd(self) -> list[str]:
        """Those to publish to."""
        return addresses_or_environment(self._defaults["nsqd"], NSQD)

    @property
    def producer(self) -> Producer[Any]:
        """For everything beside `publish`: publish_many, publish_later, send, flush."""
        if self._producer is None:
            is_missing = self._state and not self._nsqd
            why = "has no nsqd to publish to: App(nsqd=...)" if is_missing else "is not running"
            raise ClosedError(f"the app {why}")
        return self._producer

    async def publish(
        self, topic: str, body: Any, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Return when an nsqd has taken the message; a PublishError says why none has.

        headers: in front of the body, so the app needs `envelope=True`.
        """
        if headers and not self._has_envelope:
            raise OptionsError("headers need App(envelope=True), and consumers that know of it")
        await self.producer.publish(topic, Headed(body, headers) if headers else body)

    # -- beginning and end

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._stop(*details)

    async def _start(self) -> None:
        if self._state:
            raise ClosedError("the app was started before, and has not stopped")
        self._state = STARTING
        self._stack = AsyncExitStack()
        try:
            await self._enter(self._stack)
        except BaseException as error:
            await self._stop(type(error), error, error.__traceback__)
            raise
        self._state = OK

    async def _enter(self, stack: AsyncExitStack) -> None:
        """What was entered last is left first: handlers end before what they use does."""
        if nsqd := self._nsqd:
            self._producer = await stack.enter_async_context(
                Producer(
                    nsqd,
                    config=self._defaults["config"],
                    encoder=self._encoder,
                    middleware=self._middleware,
                    logger=self._defaults["logger"],
                )
            )
        resources = await stack.enter_async_context(self._lifespan(self)) if self._lifespan else {}
        resources = _check_resources(resources)
        calls = []
        for each in self._subscriptions:
            calls.append(Call(each, resources, has_envelope=self._has_envelope))
            stack.callback(calls[-1].stop)
        self._consumers = [self._make_consumer(each) for each in self._subscriptions]
        stack.push_async_callback(self._end_consumers)
        starts = [consumer.start() for consumer in self._consumers]
        for error in await asyncio.gather(*starts, return_exceptions=True):
            if error is not None:
                raise error
        for each, consumer, call in zip(self._subscriptions, self._consumers, calls, strict=True):
            work = consumer.run(call, each.concurrency, each.grace_s, stop_on_signals=False)
            self._runs.append(asyncio.create_task(work, name=f"nsqfast: {each.name}"))

    def _make_consumer(self, subscription: Subscription) -> Consumer[Any]:
        options: dict[str, Any] = {**self._defaults, **subscription.options}
        middleware = [*self._middleware, *options.pop("middleware", ())]
        return Consumer(subscription.topic, subscription.channel, middleware=middleware, **options)

    def request_stop(self) -> None:
        """Take no more messages, and have `run`, `serve` and `wait` end; call it at any time, from any thread."""
        if self._state == OK:
            self._state = STOPPING
        for consumer in self._consumers:
            consumer.request_stop()

    async def wait(self) -> None:
        """Return when all consumers have ended; raise what ended one of them before that."""
        if self._runs:
            done, _ = await asyncio.wait(self._runs, return_when=asyncio.FIRST_EXCEPTION)
            for run in done:
                run.result()

    async def _end_consumers(self) -> None:
        for consumer in self._consumers:
            consumer.request_stop()
        await asyncio.gather(*self._runs, return_exceptions=True)
        await asyncio.gather(*[consumer.stop() for consumer in self._consumers])

    async def _stop(self, *details: Any) -> None:
        if self._stack is None:
            return
        self._state = STOPPING
        try:
            await self._stack.__aexit__(*details)
        finally:
            self._reset()

    # -- a process of its own

    def run(self, http_address: str = "") -> None:
        """Handle messages until SIGTERM or SIGINT; see `serve`. Under uvloop where it is installed."""
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self.serve(http_address))

    async def serve(
        self, http_address: str = "", *, on_ready: Callable[[], object] | None = None
    ) -> None:
        """Start, handle messages until SIGTERM, SIGINT or `request_stop`, and stop in order.

        http_address: `host:port`, or the path of a Unix socket, for GET /healthz, and /metrics if prometheus-client is
        installed. OptionsError: it is not free. on_ready: called when all consumers have started.
        """
        if not self._subscriptions:
            raise OptionsError("the app handles nothing: no function has @app.subscribe(...)")
        stopping = asyncio.Event()
        if threading.current_thread() is threading.main_thread():
            watch_signals(asyncio.get_running_loop(), stopping.set, None)
        async with self._open_page(http_address):
            work = asyncio.create_task(self._live(on_ready))
            stop = asyncio.create_task(stopping.wait())
            try:
                await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
                if self._state in {"", STARTING}:  # there is nothing to finish
                    work.cancel()
                elif not work.done():
                    self._log.info("stopping")
                self.request_stop()
                await asyncio.wait({work})
            finally:
                stop.cancel()
                work.cancel()
                await asyncio.wait({work})
            if not work.cancelled():
                work.result()

    async def _live(self, on_ready: Callable[[], object] | None) -> None:
        async with self:
            for each in self._subscriptions:
                self._log.info("%s: handling, %d at a time", each.name, each.concurrency)
            if on_ready is not None:
                on_ready()
            await self.wait()

    @contextlib.asynccontextmanager
    async def _open_page(self, address: str) -> AsyncGenerator[None]:
        if not address:
            yield
            return
        metrics = add_metrics(self._middleware)
        if metrics is None:
            self._log.info("/metrics is off: pip install 'nsqfast[prometheus]'")
        else:
            self._middleware = metrics

        async def look() -> Health:
            return self.health()

        page = Page(address, look, None if metrics is None else write_registry)
        self._log.info("listening on %s", await page.start())
        try:
            yield
        finally:
            await page.close()

    def health(self) -> Health:
        """How it is: "ok" if every consumer is connected to an nsqd, and the figures of each."""
        state = self._state or STOPPING
        if not self._runs:  # none has started
            return Health(state)
        rows = [
            describe(each, consumer.stats())
            for each, consumer in zip(self._subscriptions, self._consumers, strict=True)
        ]
        if state == OK and any(run.done() for run in self._runs):
            state = FAILED
        elif state == OK and not all(row["connected"] for row in rows):
            state = NOT_CONNECTED
        return Health(state, {"subscriptions": rows})


def _check_resources(found: object) -> Mapping[str, object]:
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise OptionsError(f"a lifespan yields a mapping of names to resources, not {found!r:.100}")
    if taken := {"message", "headers"} & found.keys():
        raise OptionsError(f"a resource cannot be named {' or '.join(sorted(taken))}")
    return found
