from nsqfast._ext.core.heap import Timed, Timers
from nsqfast._ext.core.settings import Settings
from nsqfast._ext.storage.diskqueue.backlog import Storage
from nsqfast._ext.storage.diskqueue.syncer import Syncer

class PutOff(Timed):
    def __init__(self, timers: Timers) -> None: ...

class CutOff(PutOff): ...

class Release(Timed):
    def __init__(self, timers: Timers) -> None: ...

class TopicStorage(Storage):
    def __init__(self, settings: Settings, syncer: Syncer, timers: Timers) -> None: ...
