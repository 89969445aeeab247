from collections.abc import Callable

from nsqfast._ext.broker.consumer import Client
from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.protocol.http_front import HttpFront, Shortcut

def ok_counts() -> dict[str, int]: ...

class PublishShortcut(Shortcut):
    def __init__(
        self, registry: Registry, reply: Callable[..., bytes], asks_host: bool
    ) -> None: ...

class Debt(Client):
    def __init__(self, shortcut: PublishShortcut, front: HttpFront) -> None: ...
