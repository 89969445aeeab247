from typing import Any

from nsqfast._ext.core.heap import Timed

class MessageQueue(Timed):
    backend_depth: int
    policy: Any
    max_messages: int
    max_bytes: int
    drops_head: bool
    dropped_count: int
    def age_ns(self) -> int: ...
