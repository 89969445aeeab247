from collections.abc import Callable

from nsqfast._ext.broker.message_queue import MessageQueue
from nsqfast._ext.storage.engine import Store

class PostponingQueue(MessageQueue):
    message_count: int
    message_bytes: int

class Durability:
    store: Store
    closing: bool
    def __init__(self, store: Store) -> None: ...
    def write_postponed(self) -> int: ...
    def when_durable(
        self, ticket: int, callback: Callable[[str | None], None], queue: PostponingQueue | None
    ) -> None: ...
    def when_all_durable(self, callback: Callable[[str | None], None]) -> None: ...
    def fileno(self) -> int: ...
    def health(self) -> str: ...
