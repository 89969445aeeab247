from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.core.ring import Ring
from nsqfast._ext.disk.backlog import Backlog

class Takeover:
    def __init__(self, backlog: Backlog, deferred: Ring, channels: list[Channel]) -> None: ...
