from collections.abc import Callable, Iterator

from nsqfast._ext.backlog import Backlog, Storage
from nsqfast._ext.topic import Topic

class Shutdown:
    def __init__(
        self,
        storage: Storage,
        topics: list[Topic],
        on_progress: Callable[[int, int, int], object] | None,
    ) -> None: ...
    def run(self) -> OSError | None: ...
    def flush_all(self) -> Iterator[Backlog]: ...
