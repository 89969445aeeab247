from nsqfast._ext.backlog import Backlog
from nsqfast._ext.channel import Channel

class Fanout:
    def __init__(self, backlog: Backlog, channels: list[Channel]) -> None: ...
