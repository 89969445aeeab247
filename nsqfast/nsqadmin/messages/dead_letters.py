"""The dead letters of a channel, as its nodes have them: where they wait, a sample of them, and how far a redrive is.

Nodes are asked for each look. docs/POLICIES.md says what dies, and where it goes.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

import msgspec

from nsqfast.nsqadmin.cluster.answers import (
    ChannelStats,
    Count,
    NsqdStats,
    UpstreamError,
    stats_path,
)
from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.cluster.model import Node
from nsqfast.nsqadmin.messages.peek import (
    LIMIT_MAX,
    NODES_AT_ONCE,
    Message,
    NodeMessages,
    Peek,
    PeekQuery,
    Time,
    read_node,
)
from nsqfast.wire.names import EPHEMERAL, is_valid_name

SAMPLE_MAX = 1000  # messages of all nodes together
ROWS_MAX = 200
GROUPS_MAX = 50
CHANNELS_MAX = 100  # of a topic of dead letters
DEFAULT_NAME = "{topic}.{channel}.dead"  # of nsqd
CANNOT = "nsqd {version} on {host} has no dead letters: only nsqfast-nsqd does."
GONE = "{node} does not have the channel any more."
RUNNING = "running"
REASONS = ("failed", "rejected", "expired", "over_limit")  # of nsqd
FORBIDDEN = (401, 403)  # without a secret that is allowed everything there


class NodeRedrive(msgspec.Struct):
    """GET /channel/redrive of one nsqd; `begun` is in ns since 1970."""

    rate: float = 0.0
    limit: Count = 0
    filter: str = ""
    search: str = ""
    reason: str = ""
    delete: bool = False
    moved: Count = 0  # or deleted
    left: Count = 0
    state: str = ""
    error: str = ""
    begun: Time = 0.0


class NodeLetters(msgspec.Struct):
    """What one node has. With a `sentence` there is nothing: it cannot have any, or did not answer."""

    node: str
    hostname: str
    sentence: str = ""
    is_failed: bool = False
    topic: str = ""  # of the dead letters
    refusal: str = ""  # why that takes none
    counts: dict[str, int] = {}  # of the messages that died since it was started, by reason
    queues: dict[str, int] = {}  # what waits there by channel; '' is the topic's own queue
    queue: str = ""  # the one of these that is looked at
    redrive: NodeRedrive | None = None
    refused: str = ""  # why it does not say whether there is one
    sample: NodeMessages | None = None

    @property
    def troubles(self) -> list[str]:
        """What is not known of it, or not as it should be."""
        letters = f"messages that failed wait: {self.topic} takes none: {self.refusal}"
        unseen = self.sample.sentence if self.sample else ""
        return [each for each in (self.refusal and letters, self.refused, unseen) if each]

    @property
    def waiting(self) -> int:
        """In the queue that is looked at."""
        return self.queues.get(self.queue, 0)

    @property
    def is_running(self) -> bool:
        """Whether a redrive is."""
        return self.redrive is not None and self.redrive.state == RUNNING


@dataclass(slots=True)
class Group:
    """Dead letters of the sample with the same reason, and the same first line of their errors."""

    reason: str
    line: str
    count: int = 0
    oldest: float = 0.0  # when it died, Unix time


@dataclass(slots=True, eq=False)
class DeadLetters:
    """`source` is the channel in which they wait, '' if there is no choice; the sample has those with this `reason`."""

    topic: str
    channel: str
    source: str = ""
    reason: str = ""  # '': any
    nodes: list[NodeLetters] = field(default_factory=list)

    async def ask(self, upstream: Upstream, nodes: Sequence[Node]) -> None:
        """Where they are, of each of these nodes."""
        slots = asyncio.Semaphore(NODES_AT_ONCE)

        async def ask(node: Node) -> NodeLetters:
            letters = NodeLetters(node.key, node.hostname)
            async with slots:
                try:
                    await self._fill(upstream, node, letters)
                except UpstreamError as error:
                    letters.sentence = f"{node.key} did not answer: {error.message}"
                    letters.is_failed = True
            return letters

        self.nodes = list(await asyncio.gather(*map(ask, nodes)))
        sources = self.sources
        if self.source not in sources:
            self.source = sources[0] if sources else ""
        for letters in self.nodes:
            names = list(letters.queues)
            letters.queue = self.source if self.source in names else min(names, default="")

    async def peek(self, upstream: Upstream, nodes: Sequence[Node], like: Peek) -> None:
        """Take a sample of those that wait, as `like` looks at messages."""
        limit = max(1, min(LIMIT_MAX, SAMPLE_MAX // max(len(nodes), 1)))
        asked = replace(like.asked, limit=limit, offset=0, place="", node="")
        known = {node.key: node for node in nodes}
        places: dict[PeekQuery, list[NodeLetters]] = {}
        for letters in self.nodes:
            if letters.waiting:
                query = replace(asked, topic=letters.topic, channel=letters.queue)
                places.setdefault(query, []).append(letters)

        async def look(query: PeekQuery, found: list[NodeLetters]) -> None:
            peek = replace(like, asked=query)
            await peek.ask(upstream, [known[letters.node] for letters in found])
            for letters, answer in zip(found, peek.answers, strict=True):
                answer.messages = [each for each in answer.messages if self._is_meant(each)]
                letters.sample = answer

        await asyncio.gather(*(look(*pair) for pair in places.items()))

    @property
    def sources(self) -> list[str]:
        """The channels among which there is a choice; empty if there is none."""
        several = [letters.queues for letters in self.nodes if len(letters.queues) > 1]
        return sorted({name for queues in several for name in queues})

    @property
    def waiting(self) -> int:
        """On all nodes."""
        return sum(letters.waiting for letters in self.nodes)

    @property
    def scanned(self) -> int:
        """How many of them the sample was taken from, or searched."""
        return sum(letters.sample.scanned for letters in self.nodes if letters.sample)

    @property
    def is_running(self) -> bool:
        """Whether a redrive is, on any node."""
        return any(letters.is_running for letters in self.nodes)

    def messages(self) -> list[tuple[str, Message]]:
        """The sample, each with its node; those that died last come first."""
        found = [
            (letters.node, message)
            for letters in self.nodes
            for message in (letters.sample.messages if letters.sample else ())
        ]
        return sorted(found, key=lambda each: died_at(each[1]), reverse=True)

    def groups(self) -> list[Group]:
        """The largest first."""
        groups: dict[tuple[str, str], Group] = {}
        for _, message in self.messages():
            reason = message.death.reason if message.death else ""
            line = message.death.line if message.death else ""
            group = groups.setdefault((reason, line), Group(reason, line))
            group.count += 1
            group.oldest = died_at(message)  # the oldest comes last
        return sorted(groups.values(), key=lambda each: -each.count)

    async def _fill(self, upstream: Upstream, node: Node, letters: NodeLetters) -> None:
        try:
            letters.redrive = await self._read_redrive(upstream, node)
        except UpstreamError as error:
            if error.status == 404:
                host, version = node.hostname or node.key, node.version or "of unknown version"
                letters.sentence = CANNOT.format(version=version, host=host)
                return
            if error.status not in FORBIDDEN:
                raise
            letters.refused = f"it does not show redrives: {error.message}"
        path = stats_path(self.topic, self.channel)
        stats = await read_node(upstream, node, path, NsqdStats)
        channels = stats.channels_named(self.topic, self.channel)
        if not channels:
            letters.sentence = GONE.format(node=node.key)
            return
        found = channels[0]
        letters.topic = name_topic(found, self.topic, self.channel)
        letters.refusal, letters.counts = found.dead_letter_refusal, found.dead_letter_counts
        if not is_valid_name(letters.topic):
            return
        stats = await read_node(upstream, node, stats_path(letters.topic), NsqdStats)
        for topic in stats.topics_named(letters.topic):
            channels = list(topic.channels or ())[:CHANNELS_MAX]
            depths = {
                each.channel_name: each.depth
                for each in channels
                if is_valid_name(each.channel_name)
            }
            letters.queues = depths or {"": topic.depth}

    async def _read_redrive(self, upstream: Upstream, node: Node) -> NodeRedrive | None:
        """None if there was none; UpstreamError."""
        names = urlencode({"topic": self.topic, "channel": self.channel})
        try:
            return await read_node(upstream, node, f"/channel/redrive?{names}", NodeRedrive)
        except UpstreamError as error:
            if "NO_REDRIVE" not in error.message:
                raise
            return None

    def _is_meant(self, message: Message) -> bool:
        """Channels may share a topic of dead letters. What is not known to have died may be of any."""
        death = message.death
        if death is None:
            return not self.reason
        is_own = (death.topic, death.channel) == (self.topic, self.channel)
        return is_own and self.reason in ("", death.reason)


def name_topic(stats: ChannelStats, topic: str, channel: str) -> str:
    """Where its dead letters go: nsqd says it only once a message died since it was started."""
    if stats.dead_letter_topic:
        return stats.dead_letter_topic
    pattern = stats.policy.dead_letter_topic if stats.policy else ""
    return (
        (pattern or DEFAULT_NAME)
        .replace("{topic}", topic.removesuffix(EPHEMERAL))
        .replace("{channel}", channel.removesuffix(EPHEMERAL))
    )


def died_at(message: Message) -> float:
    """Unix time; where it is not known, when it came to the topic of dead letters."""
    return message.death.died if message.death else message.time
