"""GET /api/topics, /api/nodes and the paths below, /api/counter: the cluster at this moment.

Identical requests at the same time share one round of queries to the cluster. No answer is older than its request: a
round serves only requests that came before it began. While one is under way, the next one collects new requests, and
begins when the current one ends, or after `GATHER_S`, so that a node that does not answer delays nobody twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.api.answers import answer_bytes, join_warnings, query_of
from nsqfast.nsqadmin.api.objects import (
    Json,
    channel_object,
    merge_channels,
    merge_topics,
    node_object,
    topic_object,
)
from nsqfast.nsqadmin.cluster.answers import (
    CountedStats,
    CountedTopic,
    NobodyAnsweredError,
    NsqdStats,
)
from nsqfast.nsqadmin.cluster.discovery import NSQD, Discovery, Found, Nsqd

GATHER_S = 0.1
Stats = list[tuple[Nsqd, NsqdStats]]


class Rounds:
    """The rounds under way and the next ones, by the path that is asked."""

    def __init__(self) -> None:
        self._gathering: dict[str, asyncio.Task[bytes]] = {}
        self._asking: dict[str, asyncio.Task[bytes]] = {}

    async def ask(self, key: str, question: Callable[[], Awaitable[bytes]]) -> bytes:
        """The result of a `question` that was asked after this call began."""
        round_ = self._gathering.get(key)
        if round_ is None:
            round_ = asyncio.get_running_loop().create_task(self._run(key, question))
            round_.add_done_callback(_forget_error)
            self._gathering[key] = round_
        # The round continues for the others when one of them leaves.
        return await asyncio.shield(round_)

    async def _run(self, key: str, question: Callable[[], Awaitable[bytes]]) -> bytes:
        before = self._asking.get(key)
        if before is not None:
            await asyncio.wait([before], timeout=GATHER_S)
        this = self._gathering.pop(key)
        self._asking[key] = this
        try:
            return await question()
        finally:
            if self._asking.get(key) is this:
                del self._asking[key]


def _forget_error(round_: asyncio.Task[bytes]) -> None:
    """Nobody may be left to receive it."""
    if not round_.cancelled():
        round_.exception()


class Reads:
    """Questions to the nodes, which each round asks anew."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self._rounds = Rounds()

    def shared(self, question: Callable[[web.Request], Awaitable[bytes]]) -> Handler:
        """The handler of a question that depends on nothing but the path and the query."""

        async def answer(request: web.Request) -> web.Response:
            body = await self._rounds.ask(request.raw_path, lambda: question(request))
            return answer_bytes(body)

        return answer

    async def topics(self, request: web.Request) -> bytes:
        """All names, or with `inactive=true` those that no nsqd has, with their channels."""
        if query_of(request).get("inactive") == "true":
            inactive = await self._discovery.inactive_topics()
            topics = {topic: channels or None for topic, channels in inactive.value.items()}
            return _with_message({"topics": topics}, inactive)
        found = await self._discovery.topics()
        return _with_message({"topics": found.value or None}, found)

    async def nodes(self, _request: web.Request) -> bytes:
        found = await self._discovery.nodes()
        slices, pieces = Slices(), []
        for node in found.value:
            pieces.append(orjson.dumps(node_object(node)))
            await slices.pause()
        return _join_list(b'{"nodes":', pieces, {"message": join_warnings(found.failures)})

    async def node(self, request: web.Request) -> bytes:
        """One nsqd with its topics, channels and clients."""
        key = request.match_info["node"]
        known = await self._discovery.nodes(with_topics=False)
        node = next((one for one in known.value if one.key == key), None)
        if node is None:
            raise web.HTTPNotFound(text="NODE_NOT_FOUND")
        found = await self._discovery.stats([node], with_clients=True)
        topics = found.value[0][1].topics or []
        slices, pieces = Slices(), []
        for topic in topics:
            pieces.append(orjson.dumps(topic_object(node, topic)))
            await slices.pause()
        totals = {
            "total_messages": sum(topic.message_count for topic in topics),
            "total_clients": sum(
                len(channel.clients or ()) for topic in topics for channel in topic.channels or ()
            ),
        }
        head = b'{"node":' + orjson.dumps(key) + b',"topics":'
        return _join_list(head, pieces, totals | {"message": join_warnings(known.failures)})

    async def topic(self, request: web.Request) -> bytes:
        """One topic, over all nodes and on each."""
        name = request.match_info["topic"]
        found, stats, _ = await self._stats(name, "")
        parts = [
            topic_object(node, one)
            for node, numbers in stats.value
            for one in numbers.topics_named(name)
        ]
        return _with_message(merge_topics(name, parts), found, stats)

    async def channel(self, request: web.Request) -> bytes:
        """One channel, over all nodes and on each, with its clients."""
        topic, name = request.match_info["topic"], request.match_info["channel"]
        found, stats, registered = await self._stats(topic, name)
        parts = [
            channel_object(node, topic, one)
            for node, numbers in stats.value
            for one in numbers.channels_named(topic, name)
        ]
        if not parts and name not in registered:
            raise web.HTTPNotFound(text="CHANNEL_NOT_FOUND")
        return _with_message(merge_channels(topic, name, parts), found, stats)

    async def _stats(
        self, topic: str, channel: str
    ) -> tuple[Found[list[Nsqd]], Found[Stats], tuple[str, ...]]:
        """The nodes that have a topic, its numbers there, and the channels that nsqlookupd knows.

        nsqlookupd may know a topic that no nsqd has: it has no numbers, but that is not an error.
        """
        discovery, channels = self._discovery, tuple[str, ...]()
        if discovery.lookupds:
            found, channels = await discovery.look_up(topic)
            if not found.value:
                return found, Found([], []), channels
        else:
            found = await discovery.producers(topic)
        if not found.value:
            raise NobodyAnsweredError(NSQD, [])
        stats = await discovery.stats(found.value, topic, channel, with_clients=bool(channel))
        return found, stats, channels

    async def counter(self, _request: web.Request) -> bytes:
        known = await self._discovery.nodes(with_topics=False)
        if not known.value:
            return _with_message({"stats": {}}, known)
        found = await self._discovery.counts(known.value, _encode_counts)
        pieces = [piece for _, piece in found.value if piece]
        message = orjson.dumps(join_warnings(known.failures, found.failures))
        return _join(b'{"stats":{', pieces, b'},"message":' + message + b"}")


async def _encode_counts(node: Nsqd, numbers: CountedStats) -> bytes:
    """Members of an object, without its braces."""
    slices, pieces = Slices(), []
    for topic in numbers.topics or ():
        if topic.channels:
            pieces.append(orjson.dumps(_counts_of(node, topic))[1:-1])
        await slices.pause()
    return b",".join(pieces)


def _counts_of(node: Nsqd, topic: CountedTopic) -> Json:
    return {
        f"{topic.topic_name}:{channel.channel_name}:{node.key}": {
            "node": node.key,
            "topic_name": topic.topic_name,
            "channel_name": channel.channel_name,
            "message_count": channel.message_count,
        }
        for channel in topic.channels or ()
    }


def _join_list(head: bytes, pieces: list[bytes], rest: Json) -> bytes:
    """An object: `head` up to a list, null if it is empty, then the members of `rest`."""
    tail = b"," + orjson.dumps(rest)[1:]
    return _join(head + b"[", pieces, b"]" + tail) if pieces else head + b"null" + tail


def _join(head: bytes, pieces: list[bytes], tail: bytes) -> bytes:
    """Join the pieces with commas, copying megabytes only once."""
    if not pieces:
        return head + tail
    pieces[0] = head + pieces[0]
    pieces[-1] += tail
    return b",".join(pieces)


def _with_message(value: Json, *found: Found[Any]) -> bytes:
    return orjson.dumps(value | {"message": join_warnings(*(one.failures for one in found))})
