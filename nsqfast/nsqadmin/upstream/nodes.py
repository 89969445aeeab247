"""An nsqd as nsqlookupd, or it itself, describes it."""

from dataclasses import dataclass, field
from operator import attrgetter

from nsqfast.net.addresses import format_address
from nsqfast.nsqadmin.upstream.messages import NsqdInfo, Producer


@dataclass(slots=True)
class Nsqd:
    """One nsqd, and what is known of it without asking for its numbers."""

    broadcast_address: str
    http_port: int
    tcp_port: int
    hostname: str
    version: str
    remote_address: str = ""  # of its connection to the first nsqlookupd that knows it
    remote_addresses: list[str] | None = None  # "nsqlookupd/remote"; None: nsqlookupd was not asked
    topics: list[tuple[str, bool]] = field(default_factory=list)  # name, tombstoned; sorted
    is_out_of_date: bool = False
    topology_zone: str = ""
    topology_region: str = ""

    @property
    def key(self) -> str:
        """`broadcast_address:http_port`: where it is asked, and its name in the cluster."""
        return format_address((self.broadcast_address, self.http_port))

    @property
    def tcp_address(self) -> str:
        """`broadcast_address:tcp_port`."""
        return format_address((self.broadcast_address, self.tcp_port))


by_host = attrgetter("hostname", "broadcast_address", "http_port")


def node_of_producer(one: Producer) -> Nsqd:
    """As nsqlookupd shows it; a tombstone that is missing is none."""
    topics, tombstones = one.topics or [], one.tombstones or []
    tombstones = tombstones + [False] * (len(topics) - len(tombstones))
    return Nsqd(
        broadcast_address=one.broadcast_address,
        http_port=one.http_port,
        tcp_port=one.tcp_port,
        hostname=one.hostname,
        version=one.version,
        remote_address=one.remote_address,
        topics=sorted(zip(topics, tombstones, strict=False)),
        topology_zone=one.topology_zone,
        topology_region=one.topology_region,
    )


def node_of_info(info: NsqdInfo, address: str, topics: list[str]) -> Nsqd:
    """As nsqd shows itself; a very old one does not say where it is, so it is where it was asked."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    is_told = bool(info.broadcast_address)
    return Nsqd(
        broadcast_address=info.broadcast_address if is_told else host,
        http_port=info.http_port if is_told else int(port),
        tcp_port=info.tcp_port,
        hostname=info.hostname or host,
        version=info.version,
        topics=[(topic, False) for topic in sorted(topics)],
        topology_zone=info.topology_zone,
        topology_region=info.topology_region,
    )
