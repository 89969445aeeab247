"""One identified nsqd on one connection: its record, its registrations, and both as JSON."""

import re
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Any

import orjson

from nsqfast.errors import ProtocolError
from nsqfast.net.addresses import PORT_MAX
from nsqfast.net.browsers import parse_ip_address
from nsqfast.net.http_reply import encode_json
from nsqfast.wire.gojson import INT64_MAX, decode_record

_STRINGS = (
    "remote_address",
    "hostname",
    "broadcast_address",
    "version",
    "topology_zone",
    "topology_region",
)
_PROOF = "registration_secret"
_INTEGERS = {"tcp_port": INT64_MAX, "http_port": INT64_MAX}
_HOSTS = ("broadcast_address", "hostname")
_NEEDED = ("broadcast_address", "tcp_port", "http_port", "version")

# Clients make URLs and connections of these, and pages show them.
_HOST_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*", re.IGNORECASE | re.ASCII)
_IPV6 = re.compile(r"(\[)?([0-9a-f:.]+)(%[a-z0-9_.-]+)?(?(1)\])", re.IGNORECASE | re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
TEXT_SIZE_MAX = 256  # bytes of each of the texts: a host name has at most 253

NEVER_NS = INT64_MAX


@dataclass(slots=True, eq=False)
class Peer:
    """Two connections of one nsqd are two peers. Times are those of a monotonic clock."""

    remote_address: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    topology_zone: str
    topology_region: str
    seen_ns: int  # time of the last IDENTIFY or PING

    # Maintained by the registry.
    topics: set[str] = field(default_factory=set)
    channels: dict[str, set[str]] = field(default_factory=dict)  # by topic
    tombstones: dict[str, int] = field(
        default_factory=dict
    )  # by topic: its start; includes expired ones
    registration_count: int = 0  # of topics and channels
    is_gone: bool = False  # its connection ended

    json: bytes = field(init=False)
    address: str = field(init=False)  # the address that a tombstone names
    order: tuple[str, int, int, str] = field(init=False)  # the sort key of lists
    _ordered: list[str] | None = field(
        init=False, default=None
    )  # the topics, cached at the first request
    _node_json: bytes | None = field(init=False, default=None)
    _node_json_until_ns: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.json = encode_json(
            {
                "remote_address": self.remote_address,
                "hostname": self.hostname,
                "broadcast_address": self.broadcast_address,
                "tcp_port": self.tcp_port,
                "http_port": self.http_port,
                "version": self.version,
                "topology_zone": self.topology_zone,
                "topology_region": self.topology_region,
            }
        )
        self.address = plain_address(f"{self.broadcast_address}:{self.http_port}")
        self.order = (self.broadcast_address, self.tcp_port, self.http_port, self.remote_address)

    def is_tombstoned(self, topic: str, now_ns: int, lifetime_ns: int) -> bool:
        """Whether it is hidden from the producers of that topic."""
        since_ns = self.tombstones.get(topic)
        return since_ns is not None and now_ns - since_ns < lifetime_ns

    def add_topic(self, topic: str) -> None:
        """Add a topic that was not there."""
        self.topics.add(topic)
        if self._ordered is not None:
            insort(self._ordered, topic)
        self._node_json = None

    def drop_topic(self, topic: str) -> None:
        """Remove a topic that was there."""
        self.topics.remove(topic)
        self.tombstones.pop(topic, None)
        if self._ordered is not None:
            del self._ordered[bisect_left(self._ordered, topic)]
        self._node_json = None

    def touch(self) -> None:
        """Note that its tombstones have changed, or that it is gone."""
        self._node_json = None
        if self.is_gone:
            self._ordered = None

    def node_json(self, now_ns: int, lifetime_ns: int) -> bytes:
        """The record with its topics, and whether each has a tombstone."""
        if self._node_json is None or now_ns >= self._node_json_until_ns:
            topics = self._ordered = self._ordered or sorted(self.topics)
            flags = [False] * len(topics)
            for topic in self.tombstones:
                if self.is_tombstoned(topic, now_ns, lifetime_ns):
                    flags[bisect_left(topics, topic)] = True
            self._node_json = b'%b,"tombstones":%b,"topics":%b}' % (
                self.json[:-1],
                orjson.dumps(flags),
                orjson.dumps(topics),
            )
            self._node_json_until_ns = self._next_expiry(now_ns, lifetime_ns)
        return self._node_json

    def _next_expiry(self, now_ns: int, lifetime_ns: int) -> int:
        ends_ns = [since_ns + lifetime_ns for since_ns in self.tombstones.values()]
        return min((end_ns for end_ns in ends_ns if end_ns > now_ns), default=NEVER_NS)


def identify(body: bytes, remote_address: str, now_ns: int, secret: str = "") -> Peer:
    """The identity in an IDENTIFY that holds the secret, if there is one; ProtocolError, with NSQ's text if something
    is missing.
    """
    try:
        record = decode_record(body, (*_STRINGS, _PROOF), _INTEGERS)
    except ValueError:
        raise ProtocolError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
    said = record.pop(_PROOF)
    if secret:
        _check_proof(said, secret)
    if not all(record[name] for name in _NEEDED):
        raise ProtocolError("E_BAD_BODY", "IDENTIFY missing fields")
    _check_identity(record)
    record["remote_address"] = remote_address
    return Peer(seen_ns=now_ns, **record)


def _check_proof(said: str, secret: str) -> None:
    import hmac  # late: most start without a secret

    if not hmac.compare_digest(said.encode(), secret.encode()):
        what = "a wrong" if said else "no"
        raise ProtocolError(
            "E_UNAUTHORIZED", f"IDENTIFY has {what} {_PROOF}: give nsqd --registration-secret-file"
        )


def _is_host(text: str) -> bool:
    """Whether it is a host name, an IPv4 address, or an IPv6 address with or without brackets."""
    if _HOST_NAME.fullmatch(text):
        return True
    found = _IPV6.fullmatch(text)
    return found is not None and parse_ip_address(found[2]) is not None


def _check_identity(record: dict[str, Any]) -> None:
    for name in _HOSTS:
        if record[name] and not _is_host(record[name]):
            raise ProtocolError("E_BAD_BODY", f"IDENTIFY {name} is no host name and no IP address")
    for name in _STRINGS:
        if len(record[name].encode()) > TEXT_SIZE_MAX:
            raise ProtocolError("E_BAD_BODY", f"IDENTIFY {name} is longer than {TEXT_SIZE_MAX}")
        if _CONTROL.search(record[name]):
            raise ProtocolError("E_BAD_BODY", f"IDENTIFY {name} has control characters")
    for name in _INTEGERS:
        if not 0 < record[name] <= PORT_MAX:
            raise ProtocolError("E_BAD_BODY", f"IDENTIFY {name} {record[name]} is no port")


def plain_address(text: str) -> str:
    """`host:port` without the brackets of an IPv6 address, if it has any."""
    host, colon, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]") + colon + port
