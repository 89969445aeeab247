"""Asks the whole cluster again and again, once for all viewers, and keeps what it last looked like."""

import asyncio
import time
from collections.abc import Callable

from nsqfast.nsqadmin.live.model import EMPTY, Cluster
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.upstream.client import Upstream


class Poller:
    """`cluster` is the last tick; whoever waits for the next one awaits `next_tick`."""

    def __init__(self, options: Options, upstream: Upstream) -> None:
        self.cluster: Cluster = EMPTY
        self.interval_s = max(2.0, options.poll_interval_ns / 1e9)
        self._upstream = upstream
        self._listeners: list[Callable[[Cluster], None]] = []
        self._ticked = asyncio.Event()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def listen(self, listener: Callable[[Cluster], None]) -> None:
        """Call it with each new tick, on the loop, in the order of registration."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Begin to ask."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def ask_now(self) -> None:
        """Something was changed: do not wait for the rest of the interval."""
        self._wanted.set()

    async def next_tick(self) -> Cluster:
        """The tick that comes after now."""
        await self._ticked.wait()
        return self.cluster

    async def _run(self) -> None:
        while True:
            self._publish(await self._ask())
            self._wanted.clear()
            try:
                async with asyncio.timeout(self.interval_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def _ask(self) -> Cluster:
        return Cluster(
            self.cluster.tick + 1, time.time(), EMPTY.totals, {}, {}, {}, has_lookupds=False
        )

    def _publish(self, cluster: Cluster) -> None:
        self.cluster = cluster
        for listener in self._listeners:
            listener(cluster)
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()
