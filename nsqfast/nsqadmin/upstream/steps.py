"""The steps of each action on the cluster, in NSQ's order, with what every node made of them.

A question that nobody answers ends an action: NobodyAnsweredError, with the results of what was done before. A question
that only some answer is a failed result of those who did not. Commands go to one node after the other, and a failure
stops none of those behind it; `at_once` lets more than one node be told at a time.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias
from urllib.parse import urlencode

from nsqfast.nsqadmin.upstream.client import Upstream
from nsqfast.nsqadmin.upstream.discovery import NSQLOOKUPD, Discovery
from nsqfast.nsqadmin.upstream.errors import NobodyAnsweredError, Result, UpstreamError

__all__ = ["Result", "Steps", "Verb"]

Verb: TypeAlias = Literal["pause", "unpause", "empty"]


class Steps:
    """`channel` is '' for an action on a topic. `only` are the addresses of nsqd to be told, None for all."""

    def __init__(self, discovery: Discovery, upstream: Upstream, at_once: int = 1) -> None:
        self._discovery = discovery
        self._upstream = upstream
        self._at_once = at_once

    async def create_topic(self, topic: str, on: Sequence[str] = ()) -> list[Result]:
        """Registers it at every nsqlookupd, and makes it on the nsqd at the addresses `on`."""
        results = await self.tell(self._discovery.lookupds, "topic/create", topic)
        return results + await self.tell(on, "topic/create", topic)

    async def create_channel(
        self, topic: str, channel: str, on: Sequence[str] = ()
    ) -> list[Result]:
        """Registers it at every nsqlookupd, and makes it on `on` and on every nsqd that has the topic."""
        lookupds = self._discovery.lookupds
        if not lookupds and not on:
            raise NobodyAnsweredError(NSQLOOKUPD, [])
        results = await self.tell(lookupds, "channel/create", topic, channel)
        keys: list[str] = []
        if lookupds:
            try:
                found = await self._discovery.producers(topic)
            except NobodyAnsweredError as error:
                error.results = results
                raise
            keys = [node.key for node in found.value]
            results += found.failures
        nodes = dict.fromkeys([*on, *keys])
        return results + await self.tell(nodes, "channel/create", topic, channel)

    async def delete(
        self, topic: str, channel: str = "", only: Sequence[str] | None = None
    ) -> list[Result]:
        """From every nsqlookupd, then from every nsqd that has it; with `only`, from those nsqd and no nsqlookupd."""
        path = "channel/delete" if channel else "topic/delete"
        if only is not None:
            return await self.tell(only, path, topic, channel)
        # Once nsqlookupd has forgotten the topic, nobody knows any more who has it.
        found = await self._discovery.producers(topic)
        results = found.failures + await self.tell(self._discovery.lookupds, path, topic, channel)
        return results + await self.tell((node.key for node in found.value), path, topic, channel)

    async def act(
        self, verb: Verb, topic: str, channel: str = "", only: Sequence[str] | None = None
    ) -> list[Result]:
        """On every nsqd that has the topic; nsqlookupd is told nothing."""
        path = f"{'channel' if channel else 'topic'}/{verb}"
        if only is not None:
            return await self.tell(only, path, topic, channel)
        found = await self._discovery.producers(topic)
        results = await self.tell((node.key for node in found.value), path, topic, channel)
        return found.failures + results

    async def tombstone(self, topic: str, node: str) -> list[Result]:
        """Hides the nsqd at `node` from consumers of the topic, then deletes the topic there."""
        lookupds = self._discovery.lookupds
        results = await self.tell(lookupds, "topic/tombstone", topic, node=node)
        try:
            found = await self._discovery.nodes_at([node])
        except NobodyAnsweredError as error:
            error.results = results
            raise
        return results + await self.tell((one.key for one in found.value), "topic/delete", topic)

    async def tell(
        self, addresses: Iterable[str], path: str, topic: str, channel: str = "", node: str = ""
    ) -> list[Result]:
        """POSTs /PATH?topic=... to each; a result for each, in the same order."""
        given = {"topic": topic, "channel": channel, "node": node}
        target = f"/{path}?" + urlencode({name: text for name, text in given.items() if text})
        gate = asyncio.Semaphore(self._at_once)

        async def tell_one(address: str) -> Result:
            async with gate:
                try:
                    await self._upstream.post(address, target)
                except UpstreamError as error:
                    return Result(address, ok=False, text=error.message)
                return Result(address, ok=True)

        return list(await asyncio.gather(*map(tell_one, addresses)))
