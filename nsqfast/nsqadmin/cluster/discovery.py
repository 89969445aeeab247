"""Find topics, nodes, and the nodes of a topic: from nsqlookupd, or from the configured nsqd.

All are asked at once. If some do not answer, the rest counts and the failures are reported; if none does, that is
NobodyAnsweredError. Nodes with the same announced address are the same; the first nsqlookupd in the order of the flags
describes a node, later ones only add their connection to it.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import quote_plus

import msgspec

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.answers import (
    LISTS_KEPT,
    Announced,
    CountedStats,
    ListedNames,
    ListedNodes,
    ListedProducer,
    Lookup,
    NobodyAnsweredError,
    NodeIdentity,
    NsqdStats,
    UpstreamError,
    decode,
    join_sorted,
    sort_names,
    stats_path,
)
from nsqfast.nsqadmin.cluster.body import Body
from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.results import Result

# Semantic versioning (semver.org, 2.0.0); anything else counts as 0.0.0.
_NUMBER = r"(0|[1-9][0-9]*)"
_WORD = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_WORD}(?:\.{_WORD})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)

Version: TypeAlias = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]
ZERO: Version = (0, 0, 0, True, ())


@lru_cache(maxsize=256)
def parse_version(text: str) -> Version:
    """A sort key: 1.3.0-alpha.2 < 1.3.0-alpha.beta < 1.3.0."""
    found = _VERSION.fullmatch(text)
    if found is None or len(text) > 256:
        return ZERO
    major, minor, patch, suffix = found.groups()
    words = tuple(
        (not word.isdigit(), int(word) if word.isdigit() else 0, word)
        for word in (suffix.split(".") if suffix else ())
    )
    return int(major), int(minor), int(patch), not words, words


# Names, and of each whether nsqlookupd hides the node for it.
NodeTopics = tuple[tuple[str, ...], tuple[bool, ...]]
NO_TOPICS: NodeTopics = (), ()


def identify(said: NodeIdentity) -> NodeIdentity:
    """A copy without whatever else was said."""
    return NodeIdentity(*(getattr(said, name) for name in NodeIdentity.__struct_fields__))


class Nsqd(Announced, gc=False):
    """One nsqd, and everything known of it without asking for its numbers.

    `remote_address` is that of its connection to the first nsqlookupd that knows it.
    """

    remote_addresses: list[str] | None = None  # "nsqlookupd/remote"; None: nsqlookupd was not asked
    topics: tuple[str, ...] = ()  # sorted
    tombstones: tuple[bool, ...] = ()  # of each topic: whether nsqlookupd hides the node for it
    is_out_of_date: bool = False


by_host = attrgetter("hostname", "broadcast_address", "http_port")


def node_of_producer(one: Announced, topics: NodeTopics = NO_TOPICS) -> Nsqd:
    own = {"topics": topics[0], "tombstones": topics[1]}
    return Nsqd(**(msgspec.structs.asdict(one) | own))


def read_topics(one: ListedProducer) -> NodeTopics:
    """Of a node in /nodes; a missing tombstone counts as none. UpstreamError."""
    names = decode(one.topics, list[str] | None) or []  # type: ignore[arg-type]
    return sort_topics(names, _read_tombstones(bytes(one.tombstones)))


@lru_cache(maxsize=LISTS_KEPT)
def _read_tombstones(raw: bytes) -> tuple[bool, ...]:
    """There is almost never one."""
    return tuple(decode(raw, list[bool] | None) or ())  # type: ignore[arg-type]


def sort_topics(names: list[str], tombstones: tuple[bool, ...]) -> NodeTopics:
    if not any(tombstones):
        unique = frozenset(names)
        if len(unique) == len(names):
            return sort_names(unique), (False,) * len(names)
    tombstones = tombstones[: len(names)] + (False,) * (len(names) - len(tombstones))
    pairs = sorted(zip(names, tombstones, strict=True))
    return tuple(name for name, _ in pairs), tuple(hidden for _, hidden in pairs)


def node_of_info(info: NodeIdentity, address: str, topics: list[str]) -> Nsqd:
    """From nsqd's own description; a very old one does not include its address, so the queried one counts."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    who = msgspec.structs.asdict(info) | {"hostname": info.hostname or host}
    if not info.broadcast_address:
        who |= {"broadcast_address": host, "http_port": int(port)}
    return Nsqd(**who, topics=tuple(sorted(topics)), tombstones=(False,) * len(topics))


T = TypeVar("T")

NSQLOOKUPD, NSQD = "nsqlookupd", "nsqd"
BARE = stats_path()
BEGUN_AT_ONCE = 16  # requests in one turn of the loop
INACTIVE_AT_ONCE = 16  # topics that each nsqlookupd is asked for at a time


class _Name(msgspec.Struct, gc=False):
    topic_name: str


class _Names(msgspec.Struct, gc=False):
    """/stats, reduced to the names of its topics."""

    topics: list[_Name] | None = None


@dataclass(slots=True)
class Found(Generic[T]):
    value: T
    failures: list[Result]


async def ask_all(
    kind: str, addresses: Sequence[str], ask: Callable[[str], Awaitable[T]]
) -> Found[list[tuple[str, T]]]:
    """Every address with its answer, in the given order. NobodyAnsweredError also if there is none to ask."""

    async def ask_one(address: str) -> T | Result:
        try:
            return await ask(address)
        except UpstreamError as error:
            return Result(address, ok=False, text=error.message)

    async with asyncio.TaskGroup() as group:
        tasks = []
        for number, address in enumerate(addresses, 1):
            tasks.append(group.create_task(ask_one(address)))
            if number % BEGUN_AT_ONCE == 0:
                # A hundred new connections at once would delay others by 10 ms.
                await asyncio.sleep(0)
    found, failures = [], []
    for address, task in zip(addresses, tasks, strict=True):
        answer = task.result()
        if isinstance(answer, Result):
            failures.append(answer)
        else:
            found.append((address, answer))
    if not found:
        raise NobodyAnsweredError(kind, failures)
    return Found(found, failures)


@dataclass(frozen=True, slots=True)
class LookupdClient:
    """The questions to one nsqlookupd; UpstreamError."""

    address: str
    upstream: Upstream

    async def version(self) -> str:
        return (await self.upstream.read(self.address, "/info", NodeIdentity)).version

    async def topics(self) -> list[str]:
        return (await self.upstream.read(self.address, "/topics", ListedNames)).topics or []

    async def channels(self, topic: str) -> list[str]:
        path = "/channels?topic=" + quote_plus(topic)
        return (await self.upstream.read(self.address, path, ListedNames)).channels or []

    async def lookup(self, topic: str) -> Lookup:
        return await self.upstream.read(self.address, "/lookup?topic=" + quote_plus(topic), Lookup)

    async def nodes(self) -> Body:
        """All nodes with their topics, still encoded."""
        return await self.upstream.get(self.address, "/nodes")


class Discovery:
    """Stateless: asks on each call."""

    def __init__(self, options: Options, upstream: Upstream) -> None:
        self._options = options
        self._upstream = upstream

    @property
    def lookupds(self) -> list[str]:
        """Addresses of nsqlookupd; without any, the configured nsqd are the cluster."""
        return self._options.nsqlookupd_http_addresses or []

    async def topics(self) -> Found[tuple[str, ...]]:
        """The names of all topics, sorted."""
        if self.lookupds:
            found = await self._ask_lookupds(LookupdClient.topics)
            return Found(join_sorted(topics for _, topics in found.value), found.failures)
        answers = await self._read_all(self._options.nsqd_http_addresses, BARE, _Names)
        names = ([one.topic_name for one in answer.topics or ()] for _, answer in answers.value)
        return Found(join_sorted(names), answers.failures)

    async def inactive_topics(self) -> Found[dict[str, tuple[str, ...]]]:
        """Topics that no nsqd has, with their channels; only nsqlookupd knows them."""
        known = await self.topics()
        if not self.lookupds:
            return Found({}, known.failures)
        slots = asyncio.Semaphore(INACTIVE_AT_ONCE)

        async def find_inactive(topic: str) -> tuple[str, tuple[str, ...]] | None:
            channels: tuple[str, ...] = ()
            async with slots:
                with contextlib.suppress(NobodyAnsweredError):
                    if (await self.producers(topic)).value:
                        return None
                with contextlib.suppress(NobodyAnsweredError):
                    channels = (await self.channels(topic)).value
            return topic, channels

        found = await asyncio.gather(*map(find_inactive, known.value))
        return Found(dict(filter(None, found)), known.failures)

    async def channels(self, topic: str) -> Found[tuple[str, ...]]:
        """The names of a topic's channels that nsqlookupd knows, sorted."""
        found = await self._ask_lookupds(lambda one: one.channels(topic))
        return Found(join_sorted(channels for _, channels in found.value), found.failures)

    async def nodes(self, *, with_topics: bool = True) -> Found[list[Nsqd]]:
        """Every nsqd, sorted by hostname, then address; leaving out the topics is cheap."""
        if self.lookupds:
            answers = await self._ask_lookupds(LookupdClient.nodes)
            return await _join_nodes(answers, with_topics=with_topics)
        return await self.nodes_at(self._options.nsqd_http_addresses, with_topics=with_topics)

    async def has_node(self, address: str) -> bool:
        """Whether one of the nodes has this address; a configured one need not answer."""
        if not self.lookupds and address in self._options.nsqd_http_addresses:
            return True
        return any(node.key == address for node in (await self.nodes(with_topics=False)).value)

    async def nodes_at(
        self, addresses: Sequence[str], *, with_topics: bool = True
    ) -> Found[list[Nsqd]]:
        """The nsqd at these addresses, as they describe themselves."""

        async def describe(address: str) -> Nsqd:
            info = await self._upstream.read(address, "/info", NodeIdentity)
            if not with_topics:
                return node_of_info(info, address, [])
            stats = await self._upstream.read(address, BARE, _Names)
            return node_of_info(info, address, [one.topic_name for one in stats.topics or ()])

        found = await ask_all(NSQD, addresses, describe)
        return Found(sorted((node for _, node in found.value), key=by_host), found.failures)

    async def producers(self, topic: str) -> Found[list[Nsqd]]:
        """Every nsqd that has a topic; an empty list is an answer, too."""
        if self.lookupds:
            return (await self.look_up(topic))[0]
        path = stats_path(topic)

        async def describe(address: str) -> Nsqd | None:
            stats = await self._upstream.read(address, path, _Names)
            names = [one.topic_name for one in stats.topics or ()]
            if topic not in names:
                return None
            return node_of_info(
                await self._upstream.read(address, "/info", NodeIdentity), address, names
            )

        found = await ask_all(NSQD, self._options.nsqd_http_addresses, describe)
        nodes = {node.key: node for _, node in found.value if node is not None}
        return Found(sorted(nodes.values(), key=by_host), found.failures)

    async def look_up(self, topic: str) -> tuple[Found[list[Nsqd]], tuple[str, ...]]:
        """nsqlookupd's answer about a topic: its nodes and channels."""
        found = await self._ask_lookupds(lambda one: one.lookup(topic))
        nodes: dict[str, Nsqd] = {}
        for _, answer in found.value:
            for one in answer.producers or ():
                node = node_of_producer(one)
                nodes.setdefault(node.key, node)
        channels = join_sorted(answer.channels or () for _, answer in found.value)
        return Found(sorted(nodes.values(), key=by_host), found.failures), channels

    async def stats(
        self,
        nodes: Iterable[Nsqd],
        topic: str = "",
        channel: str = "",
        *,
        with_clients: bool = False,
    ) -> Found[list[tuple[Nsqd, NsqdStats]]]:
        """The numbers of these nodes: of everything, or of one topic or channel."""
        path = stats_path(topic, channel, with_clients=with_clients)
        known = {node.key: node for node in nodes}
        found = await self._read_all(list(known), path, NsqdStats)
        return Found([(known[key], stats) for key, stats in found.value], found.failures)

    async def counts(
        self, nodes: Iterable[Nsqd], make: Callable[[Nsqd, CountedStats], Awaitable[T]]
    ) -> Found[list[tuple[str, T]]]:
        """The results of `make` for the messages of each node's channels; it is called as soon as a node has answered.

        So the numbers of a large cluster are never all in memory, where the garbage collector would examine each of
        them.
        """
        known = {node.key: node for node in nodes}

        async def ask(key: str) -> T:
            return await make(known[key], await self._upstream.read(key, BARE, CountedStats))

        return await ask_all(NSQD, list(known), ask)

    async def _ask_lookupds(
        self, ask: Callable[[LookupdClient], Awaitable[T]]
    ) -> Found[list[tuple[str, T]]]:
        upstream = self._upstream
        return await ask_all(
            NSQLOOKUPD, self.lookupds, lambda address: ask(LookupdClient(address, upstream))
        )

    async def _read_all(
        self, addresses: Sequence[str], path: str, message: type[T]
    ) -> Found[list[tuple[str, T]]]:
        return await ask_all(NSQD, addresses, lambda one: self._upstream.read(one, path, message))


async def _join_nodes(
    answers: Found[list[tuple[str, Body]]], *, with_topics: bool
) -> Found[list[Nsqd]]:
    known: dict[tuple[str, int], Nsqd] = {}
    failures = list(answers.failures)
    slices = Slices()
    for address, body in answers.value:
        try:
            for one in decode(body, ListedNodes).producers or ():
                await slices.pause()
                _add_node(known, address, one, with_topics=with_topics)
        except UpstreamError as error:
            failures.append(Result(address, ok=False, text=error.message))
        await slices.pause()
    if len(failures) == len(answers.value) + len(answers.failures):
        raise NobodyAnsweredError(NSQLOOKUPD, failures)
    nodes = sorted(known.values(), key=by_host)
    newest = max((parse_version(node.version) for node in nodes), default=None)
    for node in nodes:
        node.is_out_of_date = parse_version(node.version) != newest
    return Found(nodes, failures)


def _add_node(
    known: dict[tuple[str, int], Nsqd], address: str, one: ListedProducer, *, with_topics: bool
) -> None:
    key = one.broadcast_address, one.tcp_port
    node = known.get(key)
    if node is None:
        node = node_of_producer(one, read_topics(one)) if with_topics else node_of_producer(one)
        known[key] = node
        node.remote_addresses = []
    assert node.remote_addresses is not None
    node.remote_addresses.append(f"{address}/{one.remote_address or 'N/A'}")
