from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from nsqfast._ext.core.heap import Timers
from nsqfast._ext.core.memory import Memory
from nsqfast._ext.core.settings import Settings
from nsqfast._ext.storage.health import Health

class Store:
    settings: Settings
    timers: Timers
    broker_memory: Memory
    health: Health
    dropped_count: int
    expired_count: int
    on_pending: Callable[[], object] | None
    on_checkpoint: Callable[[int], object] | None
    def announce(self) -> int: ...
    def figures(self) -> tuple[int, int, float]: ...
    def log_figures(self) -> dict[str, Any] | None: ...
    def starting(self) -> AbstractContextManager[None]: ...

class TopicStore: ...
class ChannelStore: ...
class Checkpoint: ...

class Closing:
    lost_count: int
    error: OSError | None
