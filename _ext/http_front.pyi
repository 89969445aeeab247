from collections.abc import Callable

from nsqfast._ext.http_shortcut import Shortcut

class HttpFront:
    at_rest: bool
    last_active: float
    def attach(
        self, shortcut: Shortcut, write: Callable[[bytes], None], time: Callable[[], float]
    ) -> None: ...
    def detach(self) -> None: ...
    def data_received(self, data: bytes) -> None: ...
