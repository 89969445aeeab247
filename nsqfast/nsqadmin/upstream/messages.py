"""Answers of nsqd and nsqlookupd, as far as nsqadmin reads them. Unknown keys are skipped, missing ones have Go's zero
value.

A list that Go leaves nil comes as null. Decoding raises msgspec.DecodeError (ValidationError is one) for anything else.
"""

import msgspec


class Percentiles(msgspec.Struct, gc=False):
    """From publishing to FIN, as nsqd measures it."""

    count: int = 0
    percentiles: list[dict[str, float]] | None = None


class Client(msgspec.Struct, gc=False):
    """A consumer of a channel."""

    client_id: str = ""
    hostname: str = ""
    version: str = ""
    remote_address: str = ""
    state: int = 0
    ready_count: int = 0
    in_flight_count: int = 0
    message_count: int = 0
    finish_count: int = 0
    requeue_count: int = 0
    connect_ts: int = 0
    sample_rate: int = 0
    deflate: bool = False
    snappy: bool = False
    user_agent: str = ""
    # Ours only; 0: below a second, or nothing in flight.
    oldest_in_flight_ms: int = 0  # since it was delivered
    held_ms: int = 0  # since the last FIN or REQ
    timeout_count: int = 0  # ours only
    authed: bool = False
    auth_identity: str = ""
    auth_identity_url: str = ""
    topology_zone: str = ""
    topology_region: str = ""
    tls: bool = False
    tls_cipher_suite: str = ""
    tls_version: str = ""
    tls_negotiated_protocol: str = ""
    tls_negotiated_protocol_is_mutual: bool = False


class ChannelStats(msgspec.Struct, gc=False):
    """A channel on one nsqd."""

    channel_name: str
    depth: int = 0
    backend_depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    message_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    client_count: int = 0
    zone_local_msg_count: int = 0
    region_local_msg_count: int = 0
    global_msg_count: int = 0
    clients: list[Client] | None = None
    paused: bool = False
    e2e_processing_latency: Percentiles | None = None


class TopicStats(msgspec.Struct, gc=False):
    """A topic on one nsqd."""

    topic_name: str
    channels: list[ChannelStats] | None = None
    depth: int = 0
    backend_depth: int = 0
    message_count: int = 0
    message_bytes: int = 0
    paused: bool = False
    e2e_processing_latency: Percentiles | None = None


class NsqdStats(msgspec.Struct, gc=False):
    """/stats?format=json"""

    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: list[TopicStats] | None = None


class CountedChannel(msgspec.Struct, gc=False):
    """A channel, reduced to its message count."""

    channel_name: str
    message_count: int = 0


class CountedTopic(msgspec.Struct, gc=False):
    """A topic, reduced to the message counts of its channels."""

    topic_name: str
    channels: list[CountedChannel] | None = None


class CountedStats(msgspec.Struct, gc=False):
    """/stats?format=json, reduced to the message counts of channels."""

    topics: list[CountedTopic] | None = None


class NsqdInfo(msgspec.Struct, gc=False):
    """/info of nsqd"""

    version: str = ""
    broadcast_address: str = ""
    hostname: str = ""
    http_port: int = 0
    tcp_port: int = 0
    start_time: int = 0
    topology_zone: str = ""
    topology_region: str = ""


class Announced(msgspec.Struct, gc=False):
    """An nsqd, in /nodes and /lookup of nsqlookupd."""

    broadcast_address: str = ""
    hostname: str = ""
    remote_address: str = ""  # only in /nodes
    tcp_port: int = 0
    http_port: int = 0
    version: str = ""
    topology_zone: str = ""
    topology_region: str = ""


class Producer(Announced, gc=False):
    """In /nodes."""

    tombstones: list[bool] | None = None
    topics: list[str] | None = None


class ListedProducer(Announced, gc=False):
    """In /nodes, with its topics still encoded."""

    tombstones: msgspec.Raw = msgspec.Raw(b"null")
    topics: msgspec.Raw = msgspec.Raw(b"null")


class Nodes(msgspec.Struct, gc=False):
    """/nodes"""

    producers: list[Producer] | None = None


class ListedNodes(msgspec.Struct, gc=False):
    """/nodes, with the topics of its nodes still encoded."""

    producers: list[ListedProducer] | None = None


class Lookup(msgspec.Struct, gc=False):
    """/lookup?topic="""

    channels: list[str] | None = None
    producers: list[Announced] | None = None


class Topics(msgspec.Struct, gc=False):
    """/topics"""

    topics: list[str] | None = None


class Channels(msgspec.Struct, gc=False):
    """/channels?topic="""

    channels: list[str] | None = None
