from typing import Any, final

from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.consumer import Client, Consumer
from nsqfast._ext.broker.registry import Registry

@final
class Session(Consumer):
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
    grant: Any
    deflate: bool
    snappy: bool
    def __init__(self, registry: Registry, client: Client) -> None: ...
    def pub_counts(self) -> dict[str, int]: ...
