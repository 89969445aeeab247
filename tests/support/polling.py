"""nsqadmin's poller alone, in the loop of a test; every tick is kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.cluster.history import History
from nsqfast.nsqadmin.cluster.poller import Poller
from nsqfast.nsqadmin.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from nsqfast.nsqadmin.cluster.model import Cluster

SECONDS_MAX = 50.0
INTERVAL_NS = 100_000_000


class Polling:
    """`poller` of these settings, with a history; `ticks` are all clusters that it published."""

    def __init__(self, **settings: Any) -> None:
        self.options = Options(**{"poll_interval_ns": INTERVAL_NS, **settings})
        self.ticks: list[Cluster] = []

    async def __aenter__(self) -> Self:
        self._upstream = Upstream(self.options)
        self.history = History(self.options)
        self.poller = Poller(self.options, self._upstream, self.history)
        self.poller.listen(self.ticks.append)
        self.poller.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.poller.stop()
        self._upstream.close()

    async def until(self, reached: Callable[[Cluster], object], what: str) -> Cluster:
        """The first tick from now on of which this is true."""
        last: Cluster | None = None
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while True:
                    last = await self.poller.next_tick()
                    if reached(last):
                        return last
        except TimeoutError:
            raise AssertionError(f"not in {SECONDS_MAX} s: {what}; last: {last}") from None
