from typing import Any

from nsqfast._ext.core.heap import Timed

class MessageQueue(Timed):
    exiting: bool
    backend_depth: int
    policy: Any
    max_messages: int
    max_bytes: int
    drops_head: bool
    max_age_ns: int
    dropped_count: int
    expired_count: int
    def set_age(self, max_age_ns: int) -> None: ...
    def age_ns(self) -> int: ...
