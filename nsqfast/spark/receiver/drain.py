"""--drain: receive what was published before the start, and end."""

import asyncio

from nsqfast.spark.receiver.options import NS, Options
from nsqfast.spark.receiver.room import Room
from nsqfast.spark.receiver.sealer import Sealer
from nsqfast.spark.receiver.topic import TopicReceiver
from nsqfast.tools.shared.discovery import base_url, list_topics
from nsqfast.tools.shared.program import ToolError, log
from nsqfast.tools.shared.topics import Topics

CHECK_S = 0.05
CONNECT_TIMEOUT_S = 30.0  # for each configured nsqd


class Drain:
    """Runs until nothing comes any more that was published before that time."""

    def __init__(
        self,
        options: Options,
        following: Topics,
        topics: dict[str, TopicReceiver],
        sealer: Sealer,
        room: Room,
        before_ns: int,
    ) -> None:
        self._options = options
        self._following = following
        self._topics = topics
        self._sealer = sealer
        self._room = room
        self._before_ns = before_ns

    async def run(self, is_over: asyncio.Event) -> None:
        """ToolError if there is no nsqd to drain."""
        await self._begin_topics()
        loop = asyncio.get_running_loop()
        began_s = idle_since_s = loop.time()
        while not is_over.is_set():
            now_s = loop.time()
            if self._is_busy() or not self._is_connected(now_s - began_s):
                idle_since_s = now_s
            idle_since_s = max([idle_since_s, *[t.newest_old_s for t in self._topics.values()]])
            if now_s - idle_since_s >= self._options.drain_idle_ns / NS:
                return
            if self._room.is_full and not self._sealer.waiting_count:
                log.warning("the drain ends before all has come: there is no room for more")
                return
            if now_s - began_s >= self._options.drain_timeout_ns / NS:
                log.warning("the drain ends before all has come: its time is over")
                return
            await asyncio.sleep(CHECK_S)

    async def _begin_topics(self) -> None:
        following = self._following
        if self._options.topic:
            await self._check_lookupds()
            await following.begin_given()
            if not following.begun:
                raise ToolError("no topic can be received")
            return
        async with following.make_client() as client:
            if not await following.begin_listed(client):
                raise ToolError("no nsqlookupd answers")

    async def _check_lookupds(self) -> None:
        addresses = self._options.lookupd_http_address
        lookupds = [base_url(address, "--lookupd-http-address") for address in addresses]
        async with self._following.make_client() as client:
            _, errors = await list_topics(client, lookupds)
        if lookupds and len(errors) == len(lookupds):
            raise errors[0]

    def _is_busy(self) -> bool:
        """Whether such messages are unfinished: then nsqd may send no more of them."""
        oldest_ns = self._sealer.oldest_ns()
        return oldest_ns is not None and oldest_ns < self._before_ns

    def _is_connected(self, waited_s: float) -> bool:
        """Whether each configured nsqd is connected; ToolError if it takes too long."""
        for topic in self._topics.values():
            for consumer in topic.consumers:
                for address, state in consumer.stats().connections.items():
                    if address in self._options.nsqd_tcp_address and not state.is_connected:
                        if waited_s > CONNECT_TIMEOUT_S:
                            raise ToolError(f"nsqd {address}: {state.error}")
                        return False
        return True
