from collections.abc import Callable

from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.protocol.http_front import Shortcut

def ok_counts() -> dict[str, int]: ...

class PublishShortcut(Shortcut):
    def __init__(
        self, registry: Registry, reply: Callable[..., bytes], asks_host: bool
    ) -> None: ...
