from nsqfast._ext.heap import Timers
from nsqfast._ext.syncer import Syncer

class Disposal:
    def __init__(self, timers: Timers, syncer: Syncer) -> None: ...
