from nsqfast._ext.heap import Timed, Timers

class PutOff(Timed):
    def __init__(self, timers: Timers) -> None: ...

class Release(Timed):
    def __init__(self, timers: Timers) -> None: ...
