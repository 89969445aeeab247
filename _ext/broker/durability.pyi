from collections.abc import Callable

from nsqfast._ext.core.heap import Timers
from nsqfast._ext.core.settings import Settings
from nsqfast._ext.storage.diskqueue.backlog import Queue, Storage
from nsqfast._ext.storage.diskqueue.syncer import Syncer

class PostponingQueue(Queue):
    message_count: int
    message_bytes: int

class Durability(Storage):
    closing: bool
    def __init__(self, settings: Settings, syncer: Syncer, timers: Timers) -> None: ...
    def when_durable(
        self, ticket: int, callback: Callable[[str | None], None], queue: PostponingQueue | None
    ) -> None: ...
    def fileno(self) -> int: ...
    def health(self) -> str: ...
