"""An nsqd as described by nsqlookupd, or by itself."""

from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

from nsqfast.nsqadmin.upstream.decoding import LISTS_KEPT, decode, sort_names
from nsqfast.nsqadmin.upstream.messages import Announced, ListedProducer, NsqdInfo
from nsqfast.wire.gotext import join_host_port

Topics = tuple[
    tuple[str, ...], tuple[bool, ...]
]  # names, and of each whether nsqlookupd hides the node for it
NO_TOPICS: Topics = (), ()


@dataclass(slots=True)
class Nsqd:
    """One nsqd, and everything known of it without asking for its numbers."""

    broadcast_address: str
    http_port: int
    tcp_port: int
    hostname: str
    version: str
    remote_address: str = ""  # of its connection to the first nsqlookupd that knows it
    remote_addresses: list[str] | None = None  # "nsqlookupd/remote"; None: nsqlookupd was not asked
    topics: tuple[str, ...] = ()  # sorted
    tombstones: tuple[bool, ...] = ()  # of each topic: whether nsqlookupd hides the node for it
    is_out_of_date: bool = False
    topology_zone: str = ""
    topology_region: str = ""

    @property
    def key(self) -> str:
        """`broadcast_address:http_port`: where it is asked, and its name in the cluster."""
        return join_host_port(self.broadcast_address, self.http_port)

    @property
    def tcp_address(self) -> str:
        """`broadcast_address:tcp_port`."""
        return join_host_port(self.broadcast_address, self.tcp_port)


by_host = attrgetter("hostname", "broadcast_address", "http_port")


def node_of_producer(one: Announced, topics: Topics = NO_TOPICS) -> Nsqd:
    """From nsqlookupd's description."""
    return Nsqd(
        broadcast_address=one.broadcast_address,
        http_port=one.http_port,
        tcp_port=one.tcp_port,
        hostname=one.hostname,
        version=one.version,
        remote_address=one.remote_address,
        topics=topics[0],
        tombstones=topics[1],
        topology_zone=one.topology_zone,
        topology_region=one.topology_region,
    )


def read_topics(one: ListedProducer) -> Topics:
    """Of a node in /nodes; a missing tombstone counts as none. UpstreamError."""
    names = decode(one.topics, list[str] | None) or []  # type: ignore[arg-type]
    return sort_topics(names, _read_tombstones(bytes(one.tombstones)))


@lru_cache(maxsize=LISTS_KEPT)
def _read_tombstones(raw: bytes) -> tuple[bool, ...]:
    """There is almost never one."""
    return tuple(decode(raw, list[bool] | None) or ())  # type: ignore[arg-type]


def sort_topics(names: list[str], tombstones: tuple[bool, ...]) -> Topics:
    """By name."""
    if not any(tombstones):
        unique = frozenset(names)
        if len(unique) == len(names):
            return sort_names(unique), (False,) * len(names)
    tombstones = tombstones[: len(names)] + (False,) * (len(names) - len(tombstones))
    pairs = sorted(zip(names, tombstones, strict=True))
    return tuple(name for name, _ in pairs), tuple(hidden for _, hidden in pairs)


def node_of_info(info: NsqdInfo, address: str, topics: list[str]) -> Nsqd:
    """From nsqd's own description; a very old one does not include its address, so the queried one counts."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    is_told = bool(info.broadcast_address)
    return Nsqd(
        broadcast_address=info.broadcast_address if is_told else host,
        http_port=info.http_port if is_told else int(port),
        tcp_port=info.tcp_port,
        hostname=info.hostname or host,
        version=info.version,
        topics=tuple(sorted(topics)),
        tombstones=(False,) * len(topics),
        topology_zone=info.topology_zone,
        topology_region=info.topology_region,
    )
