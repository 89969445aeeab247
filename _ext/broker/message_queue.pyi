from nsqfast._ext.core.heap import Timed

class MessageQueue(Timed):
    def age_ns(self) -> int: ...
