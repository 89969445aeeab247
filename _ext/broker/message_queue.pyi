from nsqfast._ext.core.heap import Timed

class MessageQueue(Timed):
    backend_depth: int
    def age_ns(self) -> int: ...
