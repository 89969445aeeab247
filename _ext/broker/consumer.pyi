from typing import Any

from nsqfast._ext.core.heap import Timed

class Client(Timed): ...

class Consumer:
    client: Any  # the connection, which stands above
    timeout_count: int
    def held_ns(self) -> int: ...
    def oldest_in_flight_ns(self) -> int: ...
