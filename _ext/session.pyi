from nsqfast._ext.channel import Channel
from nsqfast._ext.publisher import Publisher
from nsqfast._ext.registry import Registry

class Session(Publisher):
    state: int
    channel: Channel | None
    client_id: str
    hostname: str
    user_agent: str
    topology_zone: str
    topology_region: str
    message_count: int
    finish_count: int
    requeue_count: int
    ready_count: int
    in_flight_count: int
    sample_rate: int
    deflate: bool
    snappy: bool
    tls: bool
    common_name: str
    def __init__(self, registry: Registry) -> None: ...
