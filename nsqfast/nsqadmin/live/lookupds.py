"""The nsqlookupd of the cluster: the nsqd that each of them knows, and the topics that no nsqd has ("inactive")."""

import asyncio
import hashlib
import time
from urllib.parse import quote

import msgspec

from nsqfast.nsqadmin.live.model import Lookupd, NodeState
from nsqfast.nsqadmin.live.nodes import Identity
from nsqfast.nsqadmin.live.question import Question
from nsqfast.nsqadmin.live.slices import Slices
from nsqfast.nsqadmin.upstream.client import Upstream, UpstreamError
from nsqfast.nsqadmin.upstream.decoding import decode
from nsqfast.nsqadmin.upstream.messages import Channels, NsqdInfo, Producer, Topics
from nsqfast.wire.gotext import join_host_port

CHANNELS_KEPT_S = 30.0  # of an inactive topic; only manual actions change them
CHANNELS_ASKED_MAX = 100  # of one nsqlookupd in one tick
CHANNELS_AT_ONCE = 4


class _RawNodes(msgspec.Struct, gc=False):
    """/nodes, with its nodes still encoded."""

    producers: list[msgspec.Raw] | None = None


class LookupdWatch:
    """One nsqlookupd: its last answers, and the outcome of recent queries."""

    def __init__(self, address: str, upstream: Upstream) -> None:
        self.address = address
        self.question = Question()
        self.version = ""
        self.producers: dict[str, Producer] = {}  # by the key of the node
        self.topics: list[str] = []
        self._digest = b""  # of the last answer to /nodes
        self._listed: dict[str, Producer] = {}  # by it
        self.inactive: frozenset[str] = frozenset()  # topics whose channels are asked for
        self._channels: dict[str, tuple[float, list[str]]] = {}  # when, names
        self._upstream = upstream

    async def ask(self) -> str:
        """Ask for its nodes and topics; returns the error, or '' on success."""
        try:
            producers = await self._ask_producers()
            topics = await self._upstream.read(self.address, "/topics", Topics)
            if not self.version:
                info = await self._upstream.read(self.address, "/info", NsqdInfo)
                self.version = info.version
            await self._ask_channels()
        except UpstreamError as error:
            self.version = ""  # after an outage it may be another one
            return str(error).removeprefix("http://").removeprefix(self.address)
        self.producers = producers
        self.topics = topics.topics or []
        return ""

    async def _ask_producers(self) -> dict[str, Producer]:
        """By the key of the node; the same dict as long as the answer is the same."""
        body = await self._upstream.get(self.address, "/nodes")
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if digest == self._digest:
            return self._listed
        slices, listed = Slices(), {}
        try:
            for raw in decode(body, _RawNodes).producers or ():
                producer = decode(raw, Producer)
                listed[join_host_port(producer.broadcast_address, producer.http_port)] = producer
                await slices.pause()
        except UpstreamError as error:
            raise UpstreamError(f"/nodes: {error}") from None
        self._digest, self._listed = digest, listed
        return listed

    async def _ask_channels(self) -> None:
        now = time.monotonic()
        self._channels = {t: known for t, known in self._channels.items() if t in self.inactive}
        old = [
            topic
            for topic in sorted(self.inactive)
            if topic not in self._channels or now - self._channels[topic][0] > CHANNELS_KEPT_S
        ]
        slots = asyncio.Semaphore(CHANNELS_AT_ONCE)
        await asyncio.gather(*(self._ask_topic(topic, slots) for topic in old[:CHANNELS_ASKED_MAX]))

    async def _ask_topic(self, topic: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            path = "/channels?topic=" + quote(topic, safe="")
            found = await self._upstream.read(self.address, path, Channels)
        self._channels[topic] = (time.monotonic(), sorted(set(found.channels or ())))

    def view(self) -> Lookupd:
        """Its state at this tick; its last answers while it does not answer."""
        question = self.question
        known = set(self.topics)
        topics = {
            topic: self._channels[topic][1] if topic in self._channels else []
            for topic in sorted(self.inactive)
            if topic in known
        }
        return Lookupd(
            address=self.address,
            is_up=question.state is NodeState.UP,
            since=question.since,
            answered_at=question.answered_at,
            error=question.error,
            version=self.version,
            nodes=frozenset(self.producers),
            topics=topics,
        )


def identity_of(producer: Producer) -> Identity:
    """The identity that it reported to nsqlookupd."""
    return Identity(
        hostname=producer.hostname,
        broadcast_address=producer.broadcast_address,
        tcp_port=producer.tcp_port,
        http_port=producer.http_port,
        version=producer.version,
        topology_zone=producer.topology_zone,
        topology_region=producer.topology_region,
    )


def tombstones_of(producer: Producer) -> list[str]:
    """Topics for which this nsqlookupd hides it."""
    if not any(producer.tombstones or ()):  # nearly always
        return []
    pairs = zip(producer.topics or (), producer.tombstones or (), strict=False)
    return [topic for topic, is_hidden in pairs if is_hidden]
