from collections.abc import Callable

from nsqfast._ext.broker.registry import Registry

def ok_counts() -> dict[str, int]: ...

class Shortcut:
    def __init__(
        self, registry: Registry, reply: Callable[..., bytes], asks_host: bool
    ) -> None: ...
