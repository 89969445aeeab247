from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.protocol.body import Body

class Bodies:
    is_checked: bool
    is_large: bool
    is_done: bool
    def __init__(self, topic: Topic, data: bytes | Body, is_binary: bool) -> None: ...
    def check(self) -> bool: ...
    def put(self) -> int: ...
