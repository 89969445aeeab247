"""A broker within the process that uses it, for tests and tools: `async with nsqfast.embedded() as nsqd`.

It is a whole nsqd, on free ports of 127.0.0.1, with a temporary folder. What a daemon does to its process (signals, the
collector, the limit of descriptors, where the log goes) is left out, so there may be several, also at the same time.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from nsqfast.errors import ClosedError, OptionsError
from nsqfast.program.extras import needs

if TYPE_CHECKING:
    from nsqfast.nsqd.embedded_server import EmbeddedServer

ADVANCE_S_MAX = 366 * 86_400
TIMEOUT_S = 10.0
# Of what a failure shows.
BODIES_SHOWN = 10
BODY_SIZE_SHOWN = 100


class EmbeddedNsqd:
    """A running broker; all that it can do is done in the event loop in which it was started."""

    def __init__(self, server: "EmbeddedServer") -> None:
        from nsqfast.net.addresses import format_bound

        assert server.tcp_address is not None
        self.address = format_bound(server.tcp_address)  # of TCP, as a Producer takes it
        self.http_address = format_bound(server.http_address) if server.http_address else ""
        self._lookup = server.lookup
        self._registry = server.registry
        self._topics = server.topics
        self._topics.on_message = self._tell
        self._waiting: set[asyncio.Event] = set()
        self._loop = asyncio.get_running_loop()

    async def received(self, topic: str, n: int = 1, timeout_s: float = TIMEOUT_S) -> list[bytes]:
        """Return the bodies of the first n messages of a topic, deferred ones included; wait until it has so many.

        No consumer misses anything by it, and what was finished counts, too. The first 10,000 bodies of a topic are
        kept, up to 64 MiB, until it is deleted. AssertionError: they have not come in time; it says what there is.
        """
        from nsqfast._ext.broker.embedded import BODY_COUNT_MAX

        if not 1 <= n <= BODY_COUNT_MAX:
            raise ValueError(f"n={n}: it is a number of messages from 1 to {BODY_COUNT_MAX:,}")
        news = asyncio.Event()
        self._waiting.add(news)
        try:
            async with asyncio.timeout(timeout_s):
                while len(bodies := self.bodies(topic)) < n:
                    news.clear()
                    await news.wait()
        except TimeoutError:
            raise AssertionError(self._describe(topic, n, timeout_s)) from None
        finally:
            self._waiting.discard(news)
        return bodies[:n]

    def bodies(self, topic: str) -> list[bytes]:
        """Return what `received` would, of all messages that a topic got so far: [] if there is no such topic."""
        self._check_use()
        found = self._topics.find(topic)
        return [] if found is None else list(found.bodies)

    def advance(self, seconds: float) -> int:
        """Let so much time pass for deferred messages (DPUB, REQ with a delay); return how many are due by it.

        They are delivered in the next turn of the loop, in the order in which they would have been. Timeouts,
        heartbeats and the clocks of clients stay as they are.
        """
        self._check_use()
        if not 0 < seconds <= ADVANCE_S_MAX:
            raise ValueError(f"advance({seconds}): it takes seconds, more than 0, at most a year")
        return self._topics.let_pass(round(seconds * 1e9))

    def clear(self, *topics: str) -> None:
        """Delete these topics with all channels and messages; without a name, all topics.

        Their consumers are disconnected; those that connect again make the topic anew.
        """
        self._check_use()
        for topic in topics or [each.name for each in self._topics.sorted()]:
            if self._topics.find(topic) is not None:
                self._topics.delete(topic)

    async def registered(self) -> None:
        """Return when each nsqlookupd of its flags knows it; without --lookupd-tcp-address at once."""
        self._check_use()
        await self._lookup.was_registered()

    def _tell(self) -> None:
        for news in self._waiting:
            news.set()

    def _check_use(self) -> None:
        if self._registry.durability.closing:
            raise ClosedError("the embedded nsqd has ended")
        if asyncio.get_running_loop() is not self._loop:
            raise ClosedError("the embedded nsqd was started in another event loop")

    def _describe(self, topic: str, n: int, timeout_s: float) -> str:
        counts = {each.name: each.message_count for each in self._topics.sorted()}
        bodies = self.bodies(topic)
        shown = ", ".join(repr(body[:BODY_SIZE_SHOWN]) for body in bodies[:BODIES_SHOWN])
        count = counts.pop(topic, 0)
        kept = f", of which {len(bodies)} were kept" if len(bodies) < count else ""
        others = ", ".join(f"{name} ({count})" for name, count in counts.items())
        return (
            f"topic {topic} got {count} of {n} messages within {timeout_s:g} s{kept}: [{shown}]; "
            f"other topics: {others or 'none'}"
        )


@contextlib.asynccontextmanager
async def embedded(*flags: str) -> AsyncIterator[EmbeddedNsqd]:
    """Run a broker in the running event loop, with the flags of nsqfast-nsqd, until the block ends.

    Then connections end and messages are gone, unless --data-path says where they are kept. Whatever blocks the loop
    blocks the broker. It logs to the logger `nsqd` as that is set up. OptionsError: a flag is wrong.
    """
    with needs("nsqfast.embedded", "server"):
        from nsqfast.nsqd.embedded_server import EmbeddedServer
        from nsqfast.nsqd.http_api import HttpApi
        from nsqfast.nsqd.options import parse

    with tempfile.TemporaryDirectory(prefix="nsqfast-") as folder:
        own = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0")
        options = parse([*own, "--broadcast-address=127.0.0.1", f"--data-path={folder}", *flags])
        if options.http_drain or options.http_admin_address:
            raise OptionsError("an embedded nsqd cannot be drained: that would end its process")
        server = EmbeddedServer(options, HttpApi)
        await server.start()
        nsqd = EmbeddedNsqd(server)
        try:
            yield nsqd
        finally:
            if options.data_path == folder:
                nsqd.clear()  # instead of writing what would be removed at once
            await server.stop()
            await asyncio.sleep(0)  # what the stop has cancelled ends in this turn
