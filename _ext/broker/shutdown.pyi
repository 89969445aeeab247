from collections.abc import Callable

from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.storage.diskqueue.backlog import Storage

class Shutdown:
    def __init__(
        self,
        storage: Storage,
        topics: list[Topic],
        on_progress: Callable[[int, int, int], object] | None,
    ) -> None: ...
    def run(self) -> OSError | None: ...
    def flush_all(self) -> object: ...

def count_unstored(topics: list[Topic]) -> int: ...
