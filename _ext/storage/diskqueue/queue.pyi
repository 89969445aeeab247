from nsqfast._ext.core.memory import Memory
from nsqfast._ext.storage.diskqueue.position import DiskPosition, FileOwner
from nsqfast._ext.storage.diskqueue.reader import DiskReader
from nsqfast._ext.storage.diskqueue.syncer import Syncer
from nsqfast._ext.storage.diskqueue.writer import DiskWriter

class DiskQueue(FileOwner):
    position: DiskPosition
    reader: DiskReader
    writer: DiskWriter
    name: str
    depth: int
    unacked: int
    def __init__(
        self,
        data_path: str,
        name: str,
        syncer: Syncer,
        file_size_max: int,
        sync_every: int,
        memory: Memory | None = None,
    ) -> None: ...
    def empty(self) -> int: ...
    def close(self) -> int: ...
    def close_some(self, step: int) -> int: ...
    def delete_files(self) -> int: ...
    def put(
        self,
        body: bytes,
        *,
        id: int = 1,
        timestamp_ns: int = 1,
        attempts: int = 0,
        taken: bool = False,
    ) -> int: ...
    def get(self) -> tuple[int, int, bytes, int] | None: ...
    def finish(self, ordinal: int) -> None: ...
