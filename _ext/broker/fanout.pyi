from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.disk.backlog import Backlog

class Fanout:
    def __init__(self, backlog: Backlog, channels: list[Channel]) -> None: ...
