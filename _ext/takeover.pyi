from nsqfast._ext.backlog import Backlog
from nsqfast._ext.channel import Channel
from nsqfast._ext.ring import Ring

class Takeover:
    def __init__(self, backlog: Backlog, held: Ring, channels: list[Channel]) -> None: ...
