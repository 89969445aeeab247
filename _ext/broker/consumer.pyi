from typing import Any, final

from nsqfast._ext.core.heap import Timed, Timers

class Client(Timed): ...

class Consumer:
    client: Any  # the connection, which stands above
    client_id: str
    rdy: int
    in_flight: int
    sample_percent: int
    timeout_count: int
    def held_ns(self) -> int: ...
    def oldest_in_flight_ns(self) -> int: ...

class TakeLater(Timed):
    def __init__(self, timers: Timers) -> None: ...

class DisconnectLater(TakeLater): ...

@final
class ReadyRing: ...

class Timeouts: ...
