from typing import Any

from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.server.connection import Connection

class Guarded(Connection):
    grant: Any
    def __init__(self, registry: Registry) -> None: ...
    def on_answer(self, grant: Any) -> None: ...
