from collections.abc import Callable

from nsqfast._ext.broker.registry import Registry

class Shortcut:
    def __init__(
        self, registry: Registry, reply: Callable[[Exception | None], bytes], asks_host: bool
    ) -> None: ...
