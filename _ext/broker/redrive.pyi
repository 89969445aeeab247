from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.message_queue import MessageQueue
from nsqfast._ext.broker.topic import Topic

class Redrive:
    left_count: int
    moved_count: int
    is_gone: bool
    def __init__(
        self,
        source: MessageQueue,
        topic: Topic,
        channel: Channel,
        needle: bytes = ...,
        deletes: bool = ...,
        until_ns: int = ...,
        terms: tuple[tuple[bytes, bytes], ...] = ...,
    ) -> None: ...
    def go_on(self, most: int, choices: dict[int, bool] | None = None) -> bool: ...
