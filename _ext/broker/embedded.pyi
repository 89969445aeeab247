from collections.abc import Callable

from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.broker.topics import Topics

BODY_COUNT_MAX: int
BODY_BYTES_MAX: int

class EmbeddedTopics(Topics):
    on_message: Callable[[], object] | None
    def find(self, name: str) -> EmbeddedTopic | None: ...
    def let_pass(self, time_ns: int) -> int: ...

class EmbeddedTopic(Topic):
    bodies: list[bytes]
