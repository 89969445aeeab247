"""The consumers of a channel: its nodes are asked for this one channel, and only while somebody looks at its page.

All viewers share the answers of a tick. If a node does not answer in time, its last answer stays; it is not asked again
before it answers, and no page waits for it longer than WAIT_S.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from nsqfast.nsqadmin.live.model import Channel, Cluster, NodeState
from nsqfast.nsqadmin.upstream.client import Upstream, UpstreamError
from nsqfast.nsqadmin.upstream.messages import ChannelStats, Client, NsqdStats

WAIT_S = 0.15
NODE_TIMEOUT_S = 3.0
NODES_AT_ONCE = 16
CHANNELS_MAX = 64  # that are looked at


@dataclass(frozen=True, slots=True)
class Consumer:
    """One connection. `finish_s` is None until its second observation."""

    node: str  # key of Cluster.nodes
    client: Client
    finish_s: float | None

    @property
    def key(self) -> str:
        """Constant as long as it is connected."""
        return f"{self.node} {self.client.remote_address} {self.client.connect_ts}"


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """A node's last answer about the channel."""

    at: float  # unix time
    stats: ChannelStats
    consumers: Sequence[Consumer]


@dataclass(frozen=True, slots=True)
class Consumers:
    """Of one channel. `errors` are those of the last question, by node; a node in neither was not asked yet."""

    answers: Mapping[str, NodeAnswer] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    def all(self) -> list[Consumer]:
        """Node by node."""
        return [each for _, answer in sorted(self.answers.items()) for each in answer.consumers]


class ChannelWatch:
    """One channel with viewers."""

    def __init__(self, topic: str, channel: str, upstream: Upstream) -> None:
        name = f"topic={quote(topic, safe='')}&channel={quote(channel, safe='')}"
        self._path = f"/stats?format=json&{name}&include_clients=true&include_mem=false"
        self._names = (topic, channel)
        self._upstream = upstream
        self._slots = asyncio.Semaphore(NODES_AT_ONCE)
        self._answers: dict[str, NodeAnswer] = {}
        self._errors: dict[str, str] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._tick = -1

    async def get(self, cluster: Cluster, channel: Channel) -> Consumers:
        """Returns within WAIT_S; nodes that are down are not asked, and their last answers are gone."""
        states = {
            part.node: cluster.nodes[part.node].state
            for part in channel.parts
            if part.node in cluster.nodes
        }
        known = [key for key, state in states.items() if state is not NodeState.DOWN]
        for gone in self._answers.keys() - known:
            del self._answers[gone]
        if cluster.tick != self._tick:
            self._tick = cluster.tick
            self._errors = {}
            for key in known:
                if states[key] is NodeState.UP and key not in self._asking:
                    self._ask(key)
        if self._asking:
            await asyncio.wait(list(self._asking.values()), timeout=WAIT_S)
        return Consumers(dict(self._answers), dict(self._errors))

    def stop(self) -> None:
        """Nobody looks any more."""
        for task in self._asking.values():
            task.cancel()

    def _ask(self, key: str) -> None:
        task = self._asking[key] = asyncio.get_running_loop().create_task(self._read(key))
        task.add_done_callback(lambda _: self._asking.pop(key, None))

    async def _read(self, key: str) -> None:
        try:
            async with self._slots, asyncio.timeout(NODE_TIMEOUT_S):
                stats = await self._upstream.read(key, self._path, NsqdStats)
        except UpstreamError as error:
            self._errors[key] = str(error)
        except TimeoutError:
            self._errors[key] = "no answer in time"
        else:
            self._take(key, stats)

    def _take(self, key: str, stats: NsqdStats) -> None:
        topic, name = self._names
        channels = [
            channel
            for each in stats.topics or ()
            if each.topic_name == topic
            for channel in each.channels or ()
            if channel.channel_name == name
        ]
        if not channels:
            self._answers.pop(key, None)
            return
        now, last = time.time(), self._answers.get(key)
        before = {each.key: each.client.finish_count for each in last.consumers} if last else {}
        elapsed_s = now - last.at if last else 0.0
        consumers = []
        for client in channels[0].clients or ():
            one = Consumer(key, client, None)
            finished = before.get(one.key)
            if finished is not None and elapsed_s > 0:
                rate = max(0, client.finish_count - finished) / elapsed_s
                one = Consumer(key, client, rate)
            consumers.append(one)
        self._answers[key] = NodeAnswer(now, channels[0], consumers)


class ConsumerWatch:
    """The channels with viewers, at most the last CHANNELS_MAX."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._channels: OrderedDict[tuple[str, str], ChannelWatch] = OrderedDict()

    async def get(self, cluster: Cluster, channel: Channel) -> Consumers:
        """See ChannelWatch."""
        names = (channel.topic, channel.name)
        watch = self._channels.get(names)
        if watch is None:
            watch = self._channels[names] = ChannelWatch(*names, self._upstream)
        self._channels.move_to_end(names)
        while len(self._channels) > CHANNELS_MAX:
            self._channels.popitem(last=False)[1].stop()
        return await watch.get(cluster, channel)

    def stop(self) -> None:
        """Call this at the end."""
        for watch in self._channels.values():
            watch.stop()
