"""The registration database: which connection registered which topic and channel.

    topic  ─► its producers, its channels ─► their producers
    peer   ─► its topics, its channels

Both ways are kept, so that no request looks at what it does not answer with. Whether a producer is shown is decided
when somebody asks: nothing is removed because time went by. Keys stay when their last producer goes; see `unregister`
for the ephemeral ones. There is nothing on disk: each nsqd registers anew with each connection.
"""

import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from operator import attrgetter

from nsqfast._ext.core.budget import Part
from nsqfast.names import is_ephemeral
from nsqfast.nsqlookupd.peer import Peer, plain_address

log = logging.getLogger("nsqlookupd")

FORGET_UNITS = (
    100  # of a budget: what forgetting one registration takes, its line in the log included
)

_ORDER = attrgetter("order")


class Members:
    """The peers behind one key."""

    __slots__ = ("_sorted", "name", "peers")

    def __init__(self, name: str) -> None:
        self.name = name  # of the topic or channel
        self.peers: set[Peer] = set()
        self._sorted: list[Peer] | None = None

    def add(self, peer: Peer) -> bool:
        """Whether it is new."""
        if peer in self.peers:
            return False
        self.peers.add(peer)
        self._sorted = None
        return True

    def remove(self, peer: Peer) -> bool:
        """Whether it was there."""
        if peer not in self.peers:
            return False
        self.peers.remove(peer)
        self._sorted = None
        return True

    def present(self) -> list[Peer]:
        """In order, without those whose registrations are still being forgotten."""
        return [peer for peer in self.in_order() if not peer.is_gone]

    def in_order(self) -> list[Peer]:
        """Not to be changed by who asks."""
        if self._sorted is None:
            self._sorted = sorted(self.peers, key=_ORDER)
        return self._sorted


class Registry:
    """All registrations. Times are nanoseconds of a monotonic clock, given by who calls."""

    def __init__(self, inactive_timeout_ns: int, tombstone_lifetime_ns: int) -> None:
        self._inactive_timeout_ns = inactive_timeout_ns
        self.tombstone_lifetime_ns = tombstone_lifetime_ns
        self._clients = Members("")
        self._topics: dict[str, Members] = {}
        self._channels: dict[str, dict[str, Members]] = {}  # by topic; those of deleted topics too
        self.generation = 0  # grows with each topic that comes or goes
        self.channel_count = 0
        self.registration_count = 0  # of topics and channels
        self.on_gone: Callable[[], None] | None = None  # is to have forget_some called
        self._gone: deque[Peer] = deque()
        self._names: list[str] = []  # of topics, sorted

    # ---- connections

    def add(self, peer: Peer) -> None:
        """It said who it is."""
        self._clients.add(peer)
        _log(peer, "REGISTER", "client")

    def remove(self, peer: Peer) -> None:
        """Its connection ended: nobody is shown it any more. What it registered goes with `forget_some`.

        Keys stay, even ephemeral ones, so that names linger without producers.
        """
        if self._clients.remove(peer):
            _log(peer, "UNREGISTER", "client")
        if peer.is_gone:
            return
        peer.is_gone = True
        peer.touch()
        self.registration_count -= peer.registration_count
        self._gone.append(peer)
        if self.on_gone is not None:
            self.on_gone()
        else:
            while self.forget_some():
                pass

    def forget_some(self) -> bool:
        """A part of what those have registered who are gone; whether there is more of it."""
        part = Part()
        while self._gone:
            peer = self._gone[0]
            if not self._forget_one(peer):
                self._gone.popleft()
                peer.tombstones.clear()
            if part.is_spent(FORGET_UNITS):
                break
        return bool(self._gone)

    def _forget_one(self, peer: Peer) -> bool:
        """One channel or topic; False where there is none. To look for the first that is left would take longer each
        time, for what was taken out of a dict or a set is passed over: so the last one, or any, is popped.
        """
        if peer.channels:
            topic, own = peer.channels.popitem()
            channel = own.pop()
            if own:
                peer.channels[topic] = own
            self._channels[topic][channel].remove(peer)
            self._count(peer, -1)
            _log(peer, "UNREGISTER", "channel", topic, channel)
            return True
        if peer.topics:
            topic = peer.topics.pop()
            self._topics[topic].remove(peer)
            self._count(peer, -1)
            _log(peer, "UNREGISTER", "topic", topic)
            return True
        return False

    def register(self, peer: Peer, topic: str, channel: str = "") -> None:
        """It produces for this topic, and has this channel. What it said before is left as it is."""
        members = self._topic(topic)
        # One text for all who hold it, where a hundred commands brought a hundred.
        name = members.name
        if channel:
            of_channel = self._channel(name, channel)
            if of_channel.add(peer):
                peer.channels.setdefault(name, set()).add(of_channel.name)
                self._count(peer, 1)
                _log(peer, "REGISTER", "channel", name, channel)
        if members.add(peer):
            peer.add_topic(name)
            self._count(peer, 1)
            _log(peer, "REGISTER", "topic", name)

    def unregister(self, peer: Peer, topic: str, channel: str = "") -> None:
        """It does not any more; without a channel all of its channels of this topic are meant as well.

        An ephemeral key without producers goes, whoever asked for it; of an ephemeral topic its channels stay.
        """
        if channel:
            if self._drop_channel(peer, topic, channel):
                _log(peer, "UNREGISTER", "channel", topic, channel)
            if is_ephemeral(channel) and not self._members(topic, channel):
                self.delete_channel(topic, channel)
            return
        for own in sorted(peer.channels.get(topic, ())):
            self._drop_channel(peer, topic, own)
            log.warning(
                "client(%s) unexpected UNREGISTER category:channel key:%s subkey:%s",
                peer.remote_address,
                topic,
                own,
            )
        if self._drop_topic(peer, topic):
            _log(peer, "UNREGISTER", "topic", topic)
        members = self._topics.get(topic)
        if members is not None and is_ephemeral(topic) and not members.present():
            self._forget_topic(members)

    # ---- keys

    def create_topic(self, topic: str) -> None:
        """Also where there is one."""
        self._topic(topic)

    def create_channel(self, topic: str, channel: str) -> None:
        """With its topic."""
        self._channel(topic, channel)
        self._topic(topic)

    def delete_topic(self, topic: str) -> None:
        """With its channels. Nobody is told; who registers again brings it back."""
        for channel in list(self._channels.get(topic, ())):
            self.delete_channel(topic, channel)
        members = self._topics.get(topic)
        if members is not None:
            self._forget_topic(members)

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Whether there was one."""
        channels = self._channels.get(topic, {})
        members = channels.get(channel)
        if members is None:
            return False
        for peer in list(members.peers):
            self._drop_channel(peer, topic, channel)
        del channels[channel]
        if not channels:
            del self._channels[topic]
        self.channel_count -= 1
        return True

    def tombstone(self, topic: str, node: str, now_ns: int) -> None:
        """Hides the producers of this topic at `node` (<broadcast address>:<HTTP port>) for a while."""
        address = plain_address(node)
        members = self._topics.get(topic)
        for peer in members.peers if members is not None else ():
            if peer.address == address:
                peer.tombstones[topic] = now_ns
                peer.touch()

    # ---- questions

    @property
    def topic_count(self) -> int:
        """Topics, with producers or without."""
        return len(self._topics)

    @property
    def client_count(self) -> int:
        """Connections that said who they are."""
        return len(self._clients.peers)

    def tombstone_count(self, now_ns: int) -> int:
        """Those in force."""
        lifetime_ns = self.tombstone_lifetime_ns
        return sum(
            now_ns - since_ns < lifetime_ns
            for peer in self._clients.peers
            for since_ns in peer.tombstones.values()
        )

    def has_topic(self, topic: str) -> bool:
        """Whether anybody registered or created it."""
        return topic in self._topics

    def topics(self) -> list[str]:
        """All names, sorted."""
        return list(self._names)

    def channels(self, topic: str) -> list[str]:
        """All names, sorted; none for a topic that nobody knows."""
        return sorted(self._channels.get(topic, ()))

    def producers(self, topic: str, now_ns: int) -> list[Peer]:
        """Those that are active and not under a tombstone, in order."""
        members = self._topics.get(topic)
        if members is None:
            return []
        oldest_ns = now_ns - self._inactive_timeout_ns
        lifetime_ns = self.tombstone_lifetime_ns
        return [
            peer
            for peer in members.in_order()
            if peer.seen_ns >= oldest_ns
            and not peer.is_gone
            and not (peer.tombstones and peer.is_tombstoned(topic, now_ns, lifetime_ns))
        ]

    def nodes(self, now_ns: int) -> list[Peer]:
        """Those that are active, in order."""
        oldest_ns = now_ns - self._inactive_timeout_ns
        return [peer for peer in self._clients.in_order() if peer.seen_ns >= oldest_ns]

    def entries(self) -> Iterator[tuple[str, str, str, list[Peer]]]:
        """Category, key, subkey and producers of every key that has any, sorted; it may change meanwhile."""
        for topic in sorted(self._channels):
            for channel in self.channels(topic):
                yield "channel", topic, channel, self._members(topic, channel)
        yield "client", "", "", self._clients.in_order()
        for topic in self.topics():
            members = self._topics.get(topic)
            yield "topic", topic, "", members.present() if members is not None else []

    # ---- inside

    def _count(self, peer: Peer, change: int) -> None:
        peer.registration_count += change
        if not peer.is_gone:  # or they were taken off together
            self.registration_count += change

    def _topic(self, topic: str) -> Members:
        members = self._topics.get(topic)
        if members is None:
            members = self._topics[topic] = Members(topic)
            insort(self._names, topic)
            self.generation += 1
        return members

    def _channel(self, topic: str, channel: str) -> Members:
        channels = self._channels.setdefault(topic, {})
        members = channels.get(channel)
        if members is None:
            members = channels[channel] = Members(channel)
            self.channel_count += 1
        return members

    def _members(self, topic: str, channel: str) -> list[Peer]:
        members = self._channels.get(topic, {}).get(channel)
        return members.present() if members is not None else []

    def _drop_channel(self, peer: Peer, topic: str, channel: str) -> bool:
        own = peer.channels.get(topic)
        if own is None or channel not in own:
            return False
        self._channels[topic][channel].remove(peer)
        own.remove(channel)
        if not own:
            del peer.channels[topic]
        self._count(peer, -1)
        return True

    def _drop_topic(self, peer: Peer, topic: str) -> bool:
        if topic not in peer.topics:
            return False
        self._topics[topic].remove(peer)
        peer.drop_topic(topic)
        self._count(peer, -1)
        return True

    def _forget_topic(self, members: Members) -> None:
        for peer in list(members.peers):
            self._drop_topic(peer, members.name)
        del self._topics[members.name]
        del self._names[bisect_left(self._names, members.name)]
        self.generation += 1


def _log(peer: Peer, what: str, category: str, key: str = "", subkey: str = "") -> None:
    if log.isEnabledFor(logging.INFO):
        log.info(
            "DB: client(%s) %s category:%s key:%s subkey:%s",
            peer.remote_address,
            what,
            category,
            key,
            subkey,
        )
