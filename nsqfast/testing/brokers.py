"""Brokers for tests, each in a thread of its own, so that a test may be synchronous, or run in any event loop."""

import asyncio
import concurrent.futures
import contextlib
import itertools
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from nsqfast.client.sync.loop_thread import check_threads
from nsqfast.nsqd.embedded import TIMEOUT_S, EmbeddedNsqd, embedded
from nsqfast.program.extras import needs

T = TypeVar("T")
R = TypeVar("R")


class Background(Generic[T]):
    """Enters an asynchronous context in a thread with an event loop of its own, and leaves it at the end."""

    value: T  # what the context gave

    def __init__(self, context: AbstractAsyncContextManager[T], name: str) -> None:
        self._context = context
        self._entered: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._left: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        check_threads()
        self._thread.start()
        self.value = self._entered.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()
        self._left.result()

    def submit(self, work: Coroutine[Any, Any, R]) -> "concurrent.futures.Future[R]":
        """Run it in that loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, action: Callable[..., R], *arguments: object) -> R:
        """Call a plain function in that loop, and return its result."""

        async def act() -> R:
            return action(*arguments)

        return self.submit(act()).result()

    def _run(self) -> None:
        try:
            with needs("nsqfast.testing", "server"):
                import uvloop

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._live())
        except BaseException as error:
            (self._left if self._entered.done() else self._entered).set_exception(error)
        else:
            self._left.set_result(None)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_over = asyncio.Event()
        async with self._context as value:
            self._entered.set_result(value)
            await self._is_over.wait()


NODES = (1, 2)  # message ids differ by the number of their nsqd
REGISTERED_S_MAX = 60.0  # on a busy machine; nsqd tries again after a second
TOPIC_SIZE_MAX = 50  # of the name of a test in that of its topic
_NUMBERS = itertools.count(1)


class Nsqd:
    """A running broker; see `nsqfast.EmbeddedNsqd`, which does the same in its own event loop."""

    def __init__(self, nsqd: EmbeddedNsqd, background: Background[Any]) -> None:
        self._nsqd = nsqd
        self._background = background
        self.address = nsqd.address  # of TCP, as a Producer takes it
        self.http_address = nsqd.http_address

    async def received(self, topic: str, n: int = 1, timeout_s: float = TIMEOUT_S) -> list[bytes]:
        """Return the bodies of the first n messages of a topic, deferred ones included; wait until it has so many.

        No consumer misses anything by it, and what was finished counts, too. The first 10,000 bodies of a topic are
        kept, up to 64 MiB, until it is deleted. AssertionError: they have not come in time; it says what there is.
        """
        __tracebackhide__ = True
        work = self._background.submit(self._nsqd.received(topic, n, timeout_s))
        try:
            return await asyncio.wrap_future(work)
        except AssertionError as error:
            raise AssertionError(str(error)) from None

    def wait_received(self, topic: str, n: int = 1, timeout_s: float = TIMEOUT_S) -> list[bytes]:
        """Like `received`, for tests that are no coroutines: it blocks the thread."""
        __tracebackhide__ = True
        work = self._background.submit(self._nsqd.received(topic, n, timeout_s))
        try:
            return work.result()
        except AssertionError as error:
            raise AssertionError(str(error)) from None

    def bodies(self, topic: str) -> list[bytes]:
        """Return what `received` would, of all messages that a topic got so far: [] if there is no such topic."""
        return self._background.call(self._nsqd.bodies, topic)

    def advance(self, seconds: float) -> int:
        """Let so much time pass for deferred messages (DPUB, REQ with a delay); return how many are due by it.

        They are delivered at once, in the order in which they would have been. Timeouts, heartbeats and the clocks of
        clients stay as they are.
        """
        return self._background.call(self._nsqd.advance, seconds)

    def clear(self, *topics: str) -> None:
        """Delete these topics with all channels and messages; without a name, all topics.

        Their consumers are disconnected; those that connect again make the topic anew.
        """
        self._background.call(self._nsqd.clear, *topics)


@dataclass(frozen=True, slots=True)
class NsqCluster:
    """A running nsqlookupd, and two nsqd that are registered there."""

    lookupd_tcp_address: str  # as --lookupd-tcp-address takes it
    lookupd_http_address: str  # as a Consumer takes it
    nsqds: tuple[Nsqd, Nsqd]


@contextlib.contextmanager
def run_nsqd(*flags: str) -> Iterator[Nsqd]:
    """Run a broker with these flags of nsqfast-nsqd until the block ends; see `nsqfast.embedded`."""
    with Background(embedded(*flags), "nsqd") as background:
        yield Nsqd(background.value, background)


@contextlib.contextmanager
def run_cluster(*flags: str) -> Iterator[NsqCluster]:
    """The same for nsqlookupd and two nsqd; the flags are those of both nsqd."""
    with Background(_cluster(flags), "nsq cluster") as background:
        tcp_address, http_address, first, second = background.value
        nsqds = Nsqd(first, background), Nsqd(second, background)
        yield NsqCluster(tcp_address, http_address, nsqds)


@contextlib.asynccontextmanager
async def _cluster(
    flags: tuple[str, ...],
) -> AsyncIterator[tuple[str, str, EmbeddedNsqd, EmbeddedNsqd]]:
    with needs("nsqfast.testing", "server"):
        from nsqfast.net.addresses import format_bound
        from nsqfast.nsqlookupd.http_api import HttpApi
        from nsqfast.nsqlookupd.options import parse
        from nsqfast.nsqlookupd.server import Server

    own = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    lookupd = Server(parse([*own, "--broadcast-address=127.0.0.1"]), HttpApi)
    await lookupd.start()
    try:
        tcp_address = format_bound(lookupd.bound("TCP"))
        async with contextlib.AsyncExitStack() as stack:
            first, second = [
                await stack.enter_async_context(
                    embedded(f"--lookupd-tcp-address={tcp_address}", f"--node-id={number}", *flags)
                )
                for number in NODES
            ]
            async with asyncio.timeout(REGISTERED_S_MAX):
                await asyncio.gather(first.registered(), second.registered())
            yield tcp_address, format_bound(lookupd.bound("HTTP")), first, second
    finally:
        await lookupd.stop()


def make_topic_name(test: str) -> str:
    """Return a name that no other test of this process has, and that shows whose it is."""
    return f"{re.sub(r'[^.a-zA-Z0-9_-]+', '_', test)[:TOPIC_SIZE_MAX]}-{next(_NUMBERS)}"
