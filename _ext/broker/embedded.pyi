from collections.abc import Callable

from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.broker.topic import Topic

BODY_COUNT_MAX: int
BODY_BYTES_MAX: int

class EmbeddedRegistry(Registry):
    on_message: Callable[[], object] | None
    def find_topic(self, name: str) -> EmbeddedTopic | None: ...
    def let_pass(self, time_ns: int) -> int: ...

class EmbeddedTopic(Topic):
    bodies: list[bytes]
