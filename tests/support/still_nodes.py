"""In place of the nodes of a made cluster: they answer with what the cluster has, and do what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from nsqfast.nsqadmin.cluster.answers import ChannelStats, NsqdStats, TopicStats
from nsqfast.nsqadmin.cluster.client import UpstreamError
from nsqfast.nsqadmin.cluster.model import NodeState
from nsqfast.nsqadmin.messages.calendar import NodeCalendar
from nsqfast.nsqadmin.messages.dead_letters import NodeRedrive
from nsqfast.nsqadmin.messages.peek import Peeked
from nsqfast.nsqadmin.policies import GivenPolicy, NodePolicies
from support.admin_messages import LETTERS_COUNT, answer

if TYPE_CHECKING:
    from nsqfast.nsqadmin.cluster.model import Channel, Counts, Topic
    from support.admin_pages import StillPoller


class StillNodes:
    """As cluster.client.Upstream, as far as actions go."""

    def __init__(self, poller: StillPoller) -> None:
        self._poller = poller
        self.told: list[tuple[str, str]] = []  # address, path
        self.asked_count = self.failed_count = 0

    async def read(self, address: str, path: str, kind: type[Any]) -> Any:
        """/stats of one topic, its policies, or what waits."""
        if kind in (Peeked, NodeCalendar, NodeRedrive):
            return answer(address, path, kind)
        self._check_up(address, path)
        if kind is NodePolicies:
            return NodePolicies([GivenPolicy("orders", "^orders", None, 0, {"max_bytes": 1 << 30})])
        assert kind is NsqdStats
        names = parse_qs(urlsplit(path).query)
        if names["topic"][0].endswith(".dead"):
            letters = TopicStats(names["topic"][0], depth=LETTERS_COUNT, has_dead_letters=True)
            return NsqdStats([letters])
        topic = self._poller.cluster.topics.get(names["topic"][0])
        wanted = names.get("channel", [""])[0]
        found = None if topic is None else stats_of(topic, address, wanted)
        return NsqdStats(topics=[found] if found else [])

    async def get(self, address: str, path: str) -> bytes:
        raise UpstreamError(f"http://{address}{path}: no answer in time")

    async def post(self, address: str, path: str, body: bytes = b"") -> bytes:
        self._check_up(address, path)
        self.told.append((address, path))
        return b'{"examined": 1, "changed": 1}' if path.startswith("/channel/messages/") else b""

    def _check_up(self, address: str, path: str) -> None:
        node = self._poller.cluster.nodes.get(address)
        if node is None or node.state is NodeState.DOWN:
            raise UpstreamError(f"http://{address}{path}: connection refused")


def stats_of(topic: Topic, node: str, wanted: str) -> TopicStats | None:
    """Its share on a node, with one of its channels or with all."""
    part = next((part for part in topic.parts if part.node == node), None)
    if part is None:
        return None
    channels = [
        found
        for channel in topic.channels.values()
        if wanted in ("", channel.name)
        if (found := channel_on(channel, node)) is not None
    ]
    return TopicStats(
        topic.name, channels, part.counts.depth, part.counts.backend_depth, paused=part.paused
    )


def channel_on(channel: Channel, node: str) -> ChannelStats | None:
    """Its share on a node."""
    for part in channel.parts:
        if part.node == node:
            counts: Counts = part.counts
            return ChannelStats(
                channel.name,
                counts.depth,
                counts.backend_depth,
                counts.in_flight_count,
                counts.deferred_count,
                client_count=counts.client_count,
                paused=part.paused,
                dead_letter_counts={"failed": 1230, "rejected": 7} if counts.backend_depth else {},
            )
    return None
