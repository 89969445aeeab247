from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.server.publisher import Publisher

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
    common_name: str
    deflate: bool
    snappy: bool
    def __init__(self, registry: Registry) -> None: ...
