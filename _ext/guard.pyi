from typing import Any

from nsqfast._ext.connection import Connection
from nsqfast._ext.registry import Registry

class Guarded(Connection):
    grant: Any
    def __init__(self, registry: Registry) -> None: ...
    def on_answer(self, grant: Any) -> None: ...
