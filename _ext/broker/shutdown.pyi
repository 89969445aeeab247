from collections.abc import Callable

from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.storage.engine import Store

class Shutdown:
    def __init__(
        self,
        store: Store,
        topics: list[Topic],
        on_progress: Callable[[int, int, int], object] | None,
    ) -> None: ...
    def run(self) -> OSError | None: ...
    def queues(self) -> object: ...
    def tell(self, synced_count: int, closed_count: int) -> None: ...

def count_unstored(topics: list[Topic]) -> int: ...
