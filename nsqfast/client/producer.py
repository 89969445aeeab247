"""Publish to one nsqd or several.

Delivery is at least once. A publish is done when an nsqd has answered OK. After a broken connection, unanswered
publishes are sent again on another one, or on the same one when it is back; since the first nsqd may have taken them
after all, a message may be there twice. With `retries=0` nothing is sent twice, and the publish fails with
OutcomeUnknownError instead. A publish that certainly was not taken (it had not left yet, or came after a command that
nsqd refused) is always sent again.

Several nsqd take turns, message by message. With `sticky` the first connected one of the list gets everything: messages
of one producer then stay in order as long as that connection lasts.
"""

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from nsqfast._ext.client.publish_connection import Dispatcher
from nsqfast._ext.protocol.publish_command import Encoded
from nsqfast.client.addresses import find_nsqd, plain_address, read_nsqd
from nsqfast.client.config import Config, check_delay_s
from nsqfast.client.connection import (
    ProducerConnection,
    dial,
    make_producer_connection,
    prepare,
)
from nsqfast.client.delayed import DelayedPublisher
from nsqfast.client.lifetime import Logger
from nsqfast.client.middleware import AroundSender, Middleware, Sender
from nsqfast.client.payload import Body_contra, Encoder, add_encoder
from nsqfast.client.reconnector import Opened, Reconnector, first_timeout_s
from nsqfast.client.stats import ProducerStats
from nsqfast.errors import (
    NotConnectedError,
    OptionsError,
    PublishError,
    UndeliveredError,
)

RETRIES = 3
TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0
PAUSE_S_MAX = 2.0  # between attempts to connect: publishes wait meanwhile
BUFFER_COUNT_MAX = 10_000
BUFFER_BYTES_MAX = 64 << 20


class Producer(DelayedPublisher[Body_contra]):
    """Publishes to the nsqd at these addresses: `Producer("a:4150", "b:4150")`, or a list of them. Without any, those
    of NSQFAST_NSQD in the environment count.

    `retries` is how often a publish whose outcome is unknown is sent again, `timeout_s` how long it may take in total.
    `close_timeout_s` is how long the end waits for answers. `buffer_count_max` and `buffer_bytes_max` bound the
    unanswered publishes; beyond them a publish raises BufferFullError. encoder: makes the bytes of what is published,
    for example nsqfast.client.payload.encode_json. middleware: around each publish. logger: instead of
    "nsqfast.client".
    """

    kind: ClassVar[str] = "producer"

    def __init__(
        self,
        *addresses: str | Sequence[str],
        config: Config | None = None,
        retries: int = RETRIES,
        timeout_s: float = TIMEOUT_S,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
        buffer_count_max: int = BUFFER_COUNT_MAX,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        sticky: bool = False,
        encoder: Encoder[Body_contra] | None = None,
        middleware: Sequence[Middleware] = (),
        logger: Logger | None = None,
    ) -> None:
        super().__init__(logger)
        self._addresses, self._config = read_nsqd(find_nsqd(addresses), Config.given(config))
        if timeout_s <= 0 or retries < 0 or buffer_count_max < 1 or buffer_bytes_max < 1:
            raise OptionsError(
                "timeout_s and the buffer's bounds are positive, retries is 0 or more"
            )
        if close_timeout_s < 0:
            raise OptionsError("close_timeout_s is 0 or more")
        self._bounds = (buffer_count_max, buffer_bytes_max, retries, timeout_s, sticky)
        self._is_sticky = sticky
        self._timeout_s = timeout_s
        self._close_timeout_s = close_timeout_s
        self._middleware = add_encoder(encoder, middleware)
        self._context = prepare(self._config, self._log)
        self._dispatcher: Dispatcher | None = None
        self._sender: Sender | None = None  # the dispatcher, or the middleware around it
        self._reconnectors: dict[str, Reconnector] = {}

    # -- beginning and end

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        error = await self.finish()
        if error is not None and kind is None:
            raise error

    async def start(self) -> None:
        """Connect. An unreachable nsqd is retried for ever; RefusedError if nsqd refuses us."""
        self._begin()
        self._dispatcher = dispatcher = Dispatcher(asyncio.get_running_loop(), *self._bounds)
        self._sender = (
            AroundSender(self._middleware, dispatcher) if self._middleware else dispatcher
        )
        for address in self._addresses:
            self._keep(address)
        try:
            await self._first_tries()
        except BaseException:
            await self._end(0.0)
            raise

    def _keep(self, address: str) -> Reconnector:
        reconnector = Reconnector(address, self, self._config, self._log, pause_s_max=PAUSE_S_MAX)
        self._reconnectors[address] = reconnector
        return reconnector

    async def _first_tries(self) -> None:
        reconnectors = self._reconnectors.values()
        rest = {reconnector.tried for reconnector in reconnectors}
        deadline_s = time.monotonic() + first_timeout_s(self._config)
        while rest and not self.is_connected and (left_s := deadline_s - time.monotonic()) > 0:
            _, rest = await asyncio.wait(rest, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if not self.is_connected:
            for reconnector in reconnectors:
                reconnector.raise_refusal()

    @property
    def is_connected(self) -> bool:
        """Whether a publish could be sent now."""
        return any(
            reconnector.connection is not None for reconnector in self._reconnectors.values()
        )

    async def close(self) -> None:
        """Wait up to `close_timeout_s` for unanswered publishes, then disconnect.

        UndeliveredError: some messages sent without waiting, since the last `flush`, were not delivered.
        """
        if error := await self.finish():
            raise error

    async def finish(self, left: Mapping[str, int] | None = None) -> UndeliveredError | None:
        """Like `close`, but return the error. Used by nsqfast.client.sync.

        `left`: messages that a caller in front of this producer could not hand over, by topic.
        """
        dispatcher = self._dispatcher
        if dispatcher is None or self._why_unusable:
            return None
        self._check_loop()
        timeout_s = self._close_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_answers(dispatcher)
        except TimeoutError:
            timeout_s = 0.0
        finally:
            await self._end(timeout_s)
            error = self._take_undelivered(dispatcher, left or {})
        return error

    def _take_undelivered(
        self, dispatcher: Dispatcher, left: Mapping[str, int]
    ) -> UndeliveredError | None:
        """Log undelivered messages in one line, if there are any."""
        topics = Counter(dispatcher.take_lost()) + Counter(left)
        cause = dispatcher.take_failure()
        if not topics:
            return None
        error = UndeliveredError(dict(topics), str(cause or dispatcher.reason))
        error.__cause__ = cause
        self._log.error("%s", error)
        return error

    async def _end(self, timeout_s: float) -> None:
        if self._dispatcher is not None:
            self._dispatcher.close("the producer is closed")
        self._close_commands()
        await asyncio.gather(
            *[reconnector.stop(timeout_s) for reconnector in self._reconnectors.values()]
        )
        self._finish()

    def _forbid(self, why: str) -> None:
        super()._forbid(why)
        if self._dispatcher is not None:
            self._dispatcher.forbid(f"the producer {why}")

    # -- connections

    async def open(self, address: str, on_closed: Callable[[Any], None]) -> Opened:
        """Used by the reconnectors."""
        make = make_producer_connection(on_closed)
        connection, features = await dial(address, self._config, self._context, make)
        connection.address = address
        self._ready().join(connection, self._rank(address) if self._is_sticky else 0)
        return Opened(connection, features.name)

    def _rank(self, address: str) -> int:
        """How many of the addresses before this one are connected."""
        rank = 0
        for one, reconnector in self._reconnectors.items():
            if one == address:
                break
            rank += reconnector.connection is not None
        return rank

    @property
    def connected_addresses(self) -> list[str]:
        """The addresses to which a publish could be sent now, in order of preference. Used by nsqfast.client.sync."""
        return [
            address
            for address, reconnector in self._reconnectors.items()
            if reconnector.connection is not None
        ]

    async def open_connection_fd(self, address: str) -> int:
        """Open a connection to this nsqd for a caller without an event loop; returns its descriptor. Used by
        nsqfast.client.sync.

        -1: TLS or compression is in use, so that is impossible. It has no heartbeats, because nobody answers them
        between publishes.
        """
        if self._context is not None or self._config.snappy or self._config.deflate:
            return -1
        config = dataclasses.replace(self._config, heartbeat_interval_s=-1)
        make = make_producer_connection(lambda _connection: None)
        connection, _ = await dial(address, config, None, make)
        try:
            return connection.detach()
        finally:
            connection.close()  # if the connection is unsuitable

    async def publish_again(
        self, topic: str, body: bytes, timeout_s: float, *, may_be_there: bool
    ) -> None:
        """Retry a publish that failed once, with one retry less and its remaining time. Used by nsqfast.client.sync."""
        await self._ready().send_again(topic, body, timeout_s, may_be_there)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for an answer or a connection. Used by nsqfast.client.sync."""
        return self._dispatcher is not None and self._dispatcher.count == 0

    def on_trouble(self, reconnector: Reconnector) -> None:
        """Used by the reconnectors."""
        self._ready().reason = f"{reconnector.address}: {reconnector.error}"

    def fail_waiting(self) -> None:
        """Fail publishes that wait for a connection with NotConnectedError; none of them was sent. Used by
        nsqfast.tools.
        """
        dispatcher = self._ready()
        dispatcher.fail_waiting(f"no connection: {dispatcher.reason}")

    def on_cancelled(self) -> None:
        """Used by the reconnectors."""
        assert self._dispatcher is not None
        self._forbid_after_loop(", ".join(self._reconnectors))
        self._dispatcher.abandon(f"the producer {self._why_unusable}")
        self._take_undelivered(self._dispatcher, {})

    async def add_nsqd(self, address: str) -> None:
        """Publish to this nsqd, too; returns after the first attempt. RefusedError: it refuses us."""
        self._check_loop()
        address = plain_address(address, self._config)
        reconnector = self._reconnectors.get(address) or self._keep(address)
        await reconnector.wait_tried()
        if reconnector.was_refused:
            self._reconnectors.pop(address, None)
            await reconnector.stop()
            reconnector.raise_refusal()

    async def drop_nsqd(self, address: str) -> None:
        """Stop publishing to this nsqd, wait up to `close_timeout_s` for its answers, and disconnect.

        Messages unanswered by then go to another one. OptionsError: it is not one of the producer's addresses.
        """
        self._check_loop()
        reconnector = self._reconnectors.pop(plain_address(address, self._config), None)
        if reconnector is None:
            raise OptionsError(f"{address!r} is none of this producer's nsqd")
        if isinstance(reconnector.connection, ProducerConnection) and (
            waiting := self._ready().retire(reconnector.connection)
        ):
            await asyncio.wait(waiting, timeout=self._close_timeout_s)
        await reconnector.stop(0.0)

    async def ping(self, timeout_s: float | None = None) -> None:
        """Return when an nsqd is connected and was sent a NOP; NotConnectedError says why none is.

        `timeout_s` defaults to the producer's. nsqd does not answer a NOP, so an nsqd that hangs is found only by
        missed heartbeats, or by a publish.
        """
        self._check_loop()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while not self._ready().ping():
                    await self._ready().wait_connection()
        except TimeoutError:
            raise NotConnectedError(
                f"no connection in {timeout_s:g} s: {self._ready().reason}"
            ) from None

    @property
    def name(self) -> str:
        """Its addresses, as log lines show them."""
        return ", ".join(self._reconnectors or self._addresses)

    def note_lost(self, topic: str, count: int, error: PublishError) -> None:
        """Note that messages nobody waits for failed before they came here; `flush` and the end report it. Used by
        nsqfast.client.sync.
        """
        self._ready().note_lost(topic, count, error)

    def _ready(self) -> Dispatcher:
        self._check_use()
        assert self._dispatcher is not None
        return self._dispatcher

    # -- publishing

    def _ready_sender(self) -> Sender:
        self._check_use()
        assert self._sender is not None
        return self._sender

    async def publish(self, topic: str, body: Body_contra) -> None:
        """Return when an nsqd has taken the message; a PublishError says why none has."""
        try:
            await (self._sender or self._ready_sender()).send(topic, body, False)
        except RuntimeError:
            self._check_loop()  # asyncio's own error message is hard to understand
            raise

    async def publish_many(self, topic: str, bodies: Iterable[Body_contra]) -> None:
        """Send one MPUB: all bodies or none. nsqd limits its size (--max-body-size, 5 MiB)."""
        if listed := list(bodies):
            try:
                await (self._sender or self._ready_sender()).send_many(topic, listed, False)
            except RuntimeError:
                self._check_loop()
                raise

    async def publish_later(self, topic: str, body: Body_contra, delay_s: float) -> None:
        """Like `publish`, but nsqd holds the message back for this long (at most --max-req-timeout, an hour)."""
        self._check_loop()
        await self._ready_sender().send_later(topic, body, _delay_ms(delay_s), False)

    def send(self, topic: str, body: Body_contra) -> "asyncio.Future[None]":
        """Like `publish`, without waiting: any number may be on their way.

        You may ignore the future; `flush` and `close` raise failures. BufferFullError: `drain` first.
        """
        return (self._sender or self._ready_sender()).send(topic, body, True)

    def send_many(self, topic: str, bodies: Iterable[Body_contra]) -> "asyncio.Future[None]":
        """Like `publish_many`, without waiting."""
        if listed := list(bodies):
            return self._ready_sender().send_many(topic, listed, True)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def send_encoded(self, topic: str, bodies: Encoded) -> "asyncio.Future[None]":
        """Send one MPUB whose bodies are in one block; the caller must check the future. Used by nsqfast.tools.

        A single body goes as PUB, because nsqd's limit for batches may be lower than the one for messages.
        """
        dispatcher = self._ready()
        if len(bodies) == 1:
            return self._ready_sender().send(topic, bodies.bodies()[0], False)
        if self._middleware:
            return self._ready_sender().send_many(topic, bodies.bodies(), False)
        return dispatcher.send_encoded(topic, bodies, False)

    def send_later(self, topic: str, body: Body_contra, delay_s: float) -> "asyncio.Future[None]":
        """Like `publish_later`, without waiting."""
        return self._ready_sender().send_later(topic, body, _delay_ms(delay_s), True)

    async def drain(self) -> None:
        """Return when at most half of the buffer is used."""
        self._check_loop()
        dispatcher = self._ready()
        while not dispatcher.has_room():
            await dispatcher.wait_room()

    async def flush(self) -> None:
        """Return when everything sent has its answer; raise the first failure of a `send` since the last call."""
        self._check_loop()
        dispatcher = self._ready()
        await self._wait_answers(dispatcher)
        lost = dispatcher.take_lost()
        if failure := dispatcher.take_failure():
            failure.add_note(str(UndeliveredError(lost, "since the last flush")))
            raise failure

    @staticmethod
    async def _wait_answers(dispatcher: Dispatcher) -> None:
        waiting = dispatcher.unanswered()
        while waiting:
            await asyncio.wait([waiting[-1]])
            while waiting and waiting[-1].done():
                waiting.pop()

    def stats(self) -> ProducerStats:
        """Counts so far, and what is waiting."""
        dispatcher = self._ready()
        return ProducerStats(
            published=dispatcher.published,
            failed=dispatcher.failed,
            resent=dispatcher.resent,
            waiting=dispatcher.count,
            waiting_bytes=dispatcher.size,
            connections={
                address: reconnector.connection is not None
                for address, reconnector in self._reconnectors.items()
            },
            errors={
                address: str(reconnector.error or "not connected yet")
                for address, reconnector in self._reconnectors.items()
                if reconnector.connection is None
            },
            connects=sum(reconnector.connects for reconnector in self._reconnectors.values()),
        )


def _delay_ms(delay_s: float) -> int:
    return round(check_delay_s(delay_s, low=0) * 1000)
