"""The registration database: which connection registered which topic and channel.

    topic  ─► its producers, its channels ─► their producers
    peer   ─► its topics, its channels

The database is indexed both ways, so that a request touches only the objects in its answer. Whether a producer is shown
is decided on request. A key, which is a topic or a channel, stays for some rounds when its last producer goes, and for
ever if it was created over HTTP; see `unregister` for ephemeral ones. Nothing is on disk: each nsqd registers again
with each connection.
"""

import logging
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from nsqfast._ext.core.budget import Part
from nsqfast.errors import ProtocolError
from nsqfast.nsqlookupd.peer import Peer, plain_address
from nsqfast.wire.names import is_ephemeral

log = logging.getLogger("nsqlookupd")

FORGET_UNITS = (
    100  # of a budget: the cost of forgetting one registration or key, including its log line
)
ROUNDS = 8  # for which a key without producers stays
# More keys without producers than any cluster has names that are all away at once; some 160 MB. Otherwise a peer that
# connects, registers and leaves again and again would fill the memory with them within the rounds.
UNUSED_COUNT_MAX = 250_000

_ORDER = attrgetter("order")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """How many names there may be, each 0 for any number; the flags of the same names."""

    names_per_peer: int = 0
    topics: int = 0
    channels_per_topic: int = 0


class CeilingError(ProtocolError):
    """A name is not made because there are too many: `reason` says of what, as in nsqfast.wire.refusals."""

    def __init__(self, code: str, reason: str, flag: str, count_max: int) -> None:
        super().__init__(code, f"not registered, --{flag}={count_max} is reached")
        self.reason = reason


class Members:
    """The peers registered for one key."""

    __slots__ = ("_sorted", "is_kept", "name", "peers")

    def __init__(self, name: str) -> None:
        self.name = name  # of the topic or channel
        self.is_kept = False  # without peers, too: it was created over HTTP
        self.peers: set[Peer] = set()
        self._sorted: list[Peer] | None = None

    def add(self, peer: Peer) -> bool:
        """Add a peer; returns whether it is new."""
        if peer in self.peers:
            return False
        self.peers.add(peer)
        self._sorted = None
        return True

    def remove(self, peer: Peer) -> bool:
        """Remove a peer; returns whether it was there."""
        if peer not in self.peers:
            return False
        self.peers.remove(peer)
        self._sorted = None
        return True

    def present(self) -> list[Peer]:
        """The peers in order, without those that are gone and whose registrations are still being forgotten."""
        return [peer for peer in self.in_order() if not peer.is_gone]

    def in_order(self) -> list[Peer]:
        """The peers in order; callers must not change the list."""
        if self._sorted is None:
            self._sorted = sorted(self.peers, key=_ORDER)
        return self._sorted


NO_CEILINGS = Ceilings()


class Registry:
    """All registrations. Times are nanoseconds of a monotonic clock, passed in by the caller."""

    def __init__(
        self,
        inactive_timeout_ns: int,
        tombstone_lifetime_ns: int,
        ceilings: Ceilings = NO_CEILINGS,
    ) -> None:
        self._inactive_timeout_ns = inactive_timeout_ns
        self._ceilings = ceilings
        self.tombstone_lifetime_ns = tombstone_lifetime_ns
        self._clients = Members("")
        self._topics: dict[str, Members] = {}
        self._channels: dict[str, dict[str, Members]] = {}  # by topic; includes deleted topics
        self.generation = 0  # grows whenever a topic is created or removed
        self.channel_count = 0
        self.registration_count = 0  # of topics and channels
        self.on_gone: Callable[[], None] | None = None  # schedules calls of forget_some
        self._gone: deque[Peer] = deque()
        # Topic and channel (or "") of the keys without producers, and the round in which they lost the last one: those
        # of the longest ago first. Looking for the first of a dict would take longer each time.
        self._unused: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._round = 0
        self._names: list[str] = []  # names of topics, sorted

    # ---- connections

    def add(self, peer: Peer) -> None:
        """Add a peer that has sent IDENTIFY."""
        self._clients.add(peer)
        _log(peer, "REGISTER", "client")

    def remove(self, peer: Peer) -> None:
        """Remove a peer whose connection ended: it disappears from answers at once. `forget_some` removes its
        registrations.

        Keys stay for some rounds, even ephemeral ones, so names remain without producers.
        """
        if self._clients.remove(peer):
            _log(peer, "UNREGISTER", "client")
        if peer.is_gone:
            return
        peer.is_gone = True
        peer.touch()
        self.registration_count -= peer.registration_count
        self._gone.append(peer)
        self._begin_forgetting()

    def begin_round(self) -> None:
        """Call this ROUNDS times in the lifetime of a key without producers."""
        self._round += 1
        if self._has_outlived():
            self._begin_forgetting()

    def _begin_forgetting(self) -> None:
        if self.on_gone is not None:
            self.on_gone()
        else:
            while self.forget_some():
                pass

    def forget_some(self) -> bool:
        """Forget some registrations of peers that are gone, then some keys without producers; returns whether there are
        more.
        """
        part = Part()
        while self._gone or self._has_outlived():
            if not self._gone:
                self._forget_oldest_key()
            elif not self._forget_one(self._gone[0]):
                self._gone.popleft().tombstones.clear()
            if part.is_spent(FORGET_UNITS):
                break
        return bool(self._gone) or self._has_outlived()

    def _has_outlived(self) -> bool:
        """Whether the rounds of the oldest key without producers are over."""
        oldest = next(iter(self._unused.values()), self._round)
        return self._round - oldest > ROUNDS

    def _forget_oldest_key(self) -> None:
        topic, channel = next(iter(self._unused))
        if channel:
            log.info("DB: removing channel(%s) from topic(%s), it has no producers", channel, topic)
            self.delete_channel(topic, channel)
        else:
            log.info("DB: removing topic(%s), it has no producers", topic)
            self._forget_topic(self._topics[topic])

    def _forget_one(self, peer: Peer) -> bool:
        """Forget one channel or topic; False if there is none left.

        Pop the last element of a dict, or any of a set: looking for the first would take longer each time, because
        iteration passes over removed entries.
        """
        if peer.channels:
            topic, own = peer.channels.popitem()
            channel = own.pop()
            if own:
                peer.channels[topic] = own
            self._drop_member(self._channels[topic][channel], peer, topic, channel)
            _log(peer, "UNREGISTER", "channel", topic, channel)
            return True
        if peer.topics:
            topic = peer.topics.pop()
            self._drop_member(self._topics[topic], peer, topic, "")
            _log(peer, "UNREGISTER", "topic", topic)
            return True
        return False

    def register(self, peer: Peer, topic: str, channel: str = "") -> None:
        """Register the peer for this topic, and this channel; CeilingError. A repeated registration changes nothing."""
        self._admit_peer(peer, topic, channel)
        self._admit_names(topic, channel)
        members = self._topic(topic)
        # Share one string among all holders, even if a hundred commands brought a hundred copies.
        name = members.name
        if channel:
            of_channel = self._channel(name, channel)
            if of_channel.add(peer):
                self._unused.pop((name, channel), None)
                peer.channels.setdefault(name, set()).add(of_channel.name)
                self._count(peer, 1)
                _log(peer, "REGISTER", "channel", name, channel)
        if members.add(peer):
            self._unused.pop((name, ""), None)
            peer.add_topic(name)
            self._count(peer, 1)
            _log(peer, "REGISTER", "topic", name)

    def unregister(self, peer: Peer, topic: str, channel: str = "") -> None:
        """Unregister the peer; without a channel, also from all its channels of this topic.

        An ephemeral key without producers is removed, whoever asked for it; the channels of an ephemeral topic stay.
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
        """Create a topic that stays without producers; also succeeds if it exists; CeilingError."""
        self._admit_names(topic, "")
        self._keep(self._topic(topic), topic, "")

    def create_channel(self, topic: str, channel: str) -> None:
        """Create a channel with its topic, and both stay without producers; CeilingError."""
        self._admit_names(topic, channel)
        self._keep(self._channel(topic, channel), topic, channel)
        self._keep(self._topic(topic), topic, "")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its channels. Nobody is notified; the next registration brings it back."""
        for channel in list(self._channels.get(topic, ())):
            self.delete_channel(topic, channel)
        members = self._topics.get(topic)
        if members is not None:
            self._forget_topic(members)

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Delete a channel; returns whether it existed."""
        channels = self._channels.get(topic, {})
        members = channels.get(channel)
        if members is None:
            return False
        for peer in list(members.peers):
            self._drop_channel(peer, topic, channel)
        del channels[channel]
        self._unused.pop((topic, channel), None)
        if not channels:
            del self._channels[topic]
        self.channel_count -= 1
        return True

    def tombstone(self, topic: str, node: str, now_ns: int) -> None:
        """Hide the producers of this topic at `node` (<broadcast address>:<HTTP port>) for a while."""
        address = plain_address(node)
        members = self._topics.get(topic)
        for peer in members.peers if members is not None else ():
            if peer.address == address:
                peer.tombstones[topic] = now_ns
                peer.touch()

    # ---- queries

    @property
    def topic_count(self) -> int:
        """Number of topics, with or without producers."""
        return len(self._topics)

    @property
    def client_count(self) -> int:
        """Number of connections that have sent IDENTIFY."""
        return len(self._clients.peers)

    def tombstone_count(self, now_ns: int) -> int:
        """Number of tombstones in force."""
        lifetime_ns = self.tombstone_lifetime_ns
        return sum(
            now_ns - since_ns < lifetime_ns
            for peer in self._clients.peers
            for since_ns in peer.tombstones.values()
        )

    def has_topic(self, topic: str) -> bool:
        """Whether the topic was registered or created."""
        return topic in self._topics

    def topics(self) -> list[str]:
        """All topic names, sorted."""
        return list(self._names)

    def channels(self, topic: str) -> list[str]:
        """A topic's channel names, sorted; none for an unknown topic."""
        return sorted(self._channels.get(topic, ()))

    def producers(self, topic: str, now_ns: int) -> list[Peer]:
        """The active producers without a tombstone, in order."""
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
        """The active producers, in order."""
        oldest_ns = now_ns - self._inactive_timeout_ns
        return [peer for peer in self._clients.in_order() if peer.seen_ns >= oldest_ns]

    def entries(self) -> Iterator[tuple[str, str, str, list[Peer]]]:
        """Category, key, subkey and producers of every key that has any, sorted; the registry may change meanwhile."""
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
        if not peer.is_gone:  # otherwise they were removed together
            self.registration_count += change

    def _admit_peer(self, peer: Peer, topic: str, channel: str) -> None:
        count = peer.registration_count + (topic not in peer.topics)
        count += bool(channel) and channel not in peer.channels.get(topic, ())
        most = self._ceilings.names_per_peer
        if most and peer.registration_count < count > most:
            raise CeilingError("E_INVALID", "too_many_names", "max-names-per-peer", most)

    def _admit_names(self, topic: str, channel: str) -> None:
        most = self._ceilings.topics
        if most and topic not in self._topics and len(self._topics) >= most:
            raise CeilingError("E_BAD_TOPIC", "too_many_topics", "max-topics", most)
        most = self._ceilings.channels_per_topic
        channels = self._channels.get(topic, {})
        if most and channel and channel not in channels and len(channels) >= most:
            raise CeilingError("E_BAD_CHANNEL", "too_many_channels", "max-channels-per-topic", most)

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
        own.remove(channel)
        if not own:
            del peer.channels[topic]
        self._drop_member(self._channels[topic][channel], peer, topic, channel)
        return True

    def _drop_topic(self, peer: Peer, topic: str) -> bool:
        if topic not in peer.topics:
            return False
        peer.drop_topic(topic)
        self._drop_member(self._topics[topic], peer, topic, "")
        return True

    def _drop_member(self, members: Members, peer: Peer, topic: str, channel: str) -> None:
        members.remove(peer)
        self._count(peer, -1)
        if members.peers or members.is_kept:
            return
        self._unused[topic, channel] = self._round
        if len(self._unused) > UNUSED_COUNT_MAX:
            self._forget_oldest_key()

    def _keep(self, members: Members, topic: str, channel: str) -> None:
        members.is_kept = True
        self._unused.pop((topic, channel), None)

    def _forget_topic(self, members: Members) -> None:
        for peer in list(members.peers):
            self._drop_topic(peer, members.name)
        del self._topics[members.name]
        self._unused.pop((members.name, ""), None)
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
