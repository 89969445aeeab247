"""Publishing to one nsqd or several.

At least once. A publish is done when an nsqd has answered OK. What a broken connection leaves open is sent again on
another one, or on the same one when it is back; since the first nsqd may have taken it after all, a message may be
there twice. With `retries=0` nothing is sent twice, and the publish fails with OutcomeUnknownError instead. What
certainly was not taken (it had not left yet, or stood behind a command that nsqd refused) is always sent again.

Several nsqd take turns, message by message. With `sticky` the first one in the list that is connected gets everything:
messages of one producer then stay in order as long as that connection does.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Self

from nsqfast._ext.outbox import Dispatcher
from nsqfast.client.config import Config
from nsqfast.client.connection import ProducerLink, dial, make_producer_link, prepare
from nsqfast.client.keeper import Keeper
from nsqfast.client.stats import ProducerStats
from nsqfast.errors import ClosedError, OptionsError, RefusedError

log = logging.getLogger("nsqfast.client")

RETRIES = 3
TIMEOUT_S = 30.0
BUFFER_COUNT_MAX = 10_000
BUFFER_BYTES_MAX = 64 << 20


class Producer:
    """`retries` is how often a publish whose outcome is unknown is sent again, `timeout_s` how long it may take in all.

    `buffer_count_max` and `buffer_bytes_max` bound what waits for an answer; beyond them is a BufferFullError.
    """

    def __init__(
        self,
        *addresses: str,
        config: Config | None = None,
        retries: int = RETRIES,
        timeout_s: float = TIMEOUT_S,
        buffer_count_max: int = BUFFER_COUNT_MAX,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        sticky: bool = False,
    ) -> None:
        if not addresses:
            raise OptionsError("a producer needs the address of an nsqd")
        if timeout_s <= 0 or retries < 0 or buffer_count_max < 1 or buffer_bytes_max < 1:
            raise OptionsError(
                "timeout_s and the buffer's bounds are positive, retries is 0 or more"
            )
        self._addresses = addresses
        self._config = config or Config()
        self._bounds = (buffer_count_max, buffer_bytes_max, retries, timeout_s, sticky)
        self._context = prepare(addresses, self._config)
        self._dispatcher: Dispatcher | None = None
        self._keepers: list[Keeper] = []

    # -- beginning and end

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self._end()

    async def start(self) -> None:
        """Connect. One that cannot be reached yet is tried again and again; RefusedError if nsqd will not have us."""
        if self._dispatcher is not None:
            raise ClosedError("the producer was started before")
        loop = asyncio.get_running_loop()
        self._dispatcher = Dispatcher(loop, *self._bounds)
        self._keepers = [Keeper(address, self, self._config) for address in self._addresses]
        try:
            await self._first_tries()
        except BaseException:
            await self._end()
            raise

    async def _first_tries(self) -> None:
        rest = {keeper.tried for keeper in self._keepers}
        while rest and not any(keeper.link for keeper in self._keepers):
            _, rest = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
        if any(keeper.link for keeper in self._keepers):
            return
        for keeper in self._keepers:
            if isinstance(keeper.error, RefusedError):
                raise keeper.error

    async def close(self) -> None:
        """Wait for what has no answer yet, then hang up; the first failure of a `send` is raised, as in `flush`."""
        if self._dispatcher is None:
            return
        try:
            await self._settle(self._dispatcher)
        finally:
            await self._end()
        self._raise_failure(self._dispatcher)

    async def _end(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.close()
        await asyncio.gather(*[keeper.stop() for keeper in self._keepers])

    async def open(self, address: str, on_closed: Callable[[Any], None]) -> ProducerLink:
        """Used by the keepers."""
        make = make_producer_link(on_closed)
        link, _ = await dial(address, self._config, self._context, make)
        before = self._addresses[: self._addresses.index(address)]
        place = sum(keeper.link is not None for keeper in self._keepers if keeper.address in before)
        self._ready().join(link, place)
        return link

    def on_trouble(self, keeper: Keeper, pause_s: float) -> None:
        """Used by the keepers."""
        self._ready().reason = f"{keeper.address}: {keeper.error}"
        log.warning("%s: %s; again in %.1f s", keeper.address, keeper.error, pause_s)

    def _ready(self) -> Dispatcher:
        if self._dispatcher is None:
            raise ClosedError("the producer was not started: `async with Producer(...)`")
        return self._dispatcher

    # -- publishing

    async def publish(self, topic: str, body: bytes) -> None:
        """Return when an nsqd has taken the message; a PublishError says why none did."""
        await (self._dispatcher or self._ready()).send(topic, body, False)

    async def publish_many(self, topic: str, bodies: Iterable[bytes]) -> None:
        """One MPUB: all of them or none. nsqd has limits for its size (--max-body-size, 5 MiB)."""
        if listed := list(bodies):
            await self._ready().send_many(topic, listed, False)

    async def publish_later(self, topic: str, body: bytes, delay_s: float) -> None:
        """Like `publish`; nsqd holds the message back for so long (--max-req-timeout at most, an hour)."""
        await self._ready().send_later(topic, body, _delay_ms(delay_s), False)

    def send(self, topic: str, body: bytes) -> "asyncio.Future[None]":
        """Like `publish`, without waiting: any number may be on their way.

        The future need not be looked at; `flush` and `close` raise what went wrong. BufferFullError: `drain` first.
        """
        return (self._dispatcher or self._ready()).send(topic, body, True)

    def send_many(self, topic: str, bodies: Iterable[bytes]) -> "asyncio.Future[None]":
        """Like `publish_many`, without waiting."""
        if listed := list(bodies):
            return self._ready().send_many(topic, listed, True)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def send_later(self, topic: str, body: bytes, delay_s: float) -> "asyncio.Future[None]":
        """Like `publish_later`, without waiting."""
        return self._ready().send_later(topic, body, _delay_ms(delay_s), True)

    async def drain(self) -> None:
        """Return when at most half of the buffer is used."""
        dispatcher = self._ready()
        while not dispatcher.has_room():
            await dispatcher.wait_room()

    async def flush(self) -> None:
        """Return when all sent so far has its answer; raise the first failure of a `send` since the last time."""
        dispatcher = self._ready()
        await self._settle(dispatcher)
        self._raise_failure(dispatcher)

    @staticmethod
    async def _settle(dispatcher: Dispatcher) -> None:
        waiting = dispatcher.unanswered()
        while waiting:
            await asyncio.wait([waiting[-1]])
            while waiting and waiting[-1].done():
                waiting.pop()

    @staticmethod
    def _raise_failure(dispatcher: Dispatcher) -> None:
        if failure := dispatcher.take_failure():
            raise failure

    def stats(self) -> ProducerStats:
        """What was done and what waits."""
        dispatcher = self._ready()
        return ProducerStats(
            published=dispatcher.published,
            failed=dispatcher.failed,
            resent=dispatcher.resent,
            waiting=dispatcher.count,
            waiting_bytes=dispatcher.size,
            connections={keeper.address: keeper.link is not None for keeper in self._keepers},
            connects=sum(keeper.connects for keeper in self._keepers),
        )


def _delay_ms(delay_s: float) -> int:
    if delay_s < 0:
        raise ValueError(f"a delay of {delay_s} s")
    return round(delay_s * 1000)
