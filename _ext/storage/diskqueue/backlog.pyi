from nsqfast._ext.core.heap import Timed, Timers
from nsqfast._ext.core.settings import Settings
from nsqfast._ext.storage.diskqueue.syncer import Syncer

class SyncTick(Timed):
    def __init__(self, timers: Timers, period_ns: int, end: SyncEnd) -> None: ...

class SyncEnd(Timed):
    def __init__(self, timers: Timers, syncer: Syncer) -> None: ...

class Storage:
    settings: Settings
    syncer: Syncer
    timers: Timers
    def __init__(self, settings: Settings, syncer: Syncer, timers: Timers) -> None: ...

class Backlog:
    def __init__(self, name: str, storage: Storage, is_ephemeral: bool) -> None: ...

class Queue(Timed):
    def age_ns(self) -> int: ...
