from nsqfast._ext.disk.syncer import Syncer
from nsqfast._ext.disk.writer import DiskWriter

class DiskQueue(DiskWriter):
    def __init__(
        self, data_path: str, name: str, syncer: Syncer, file_size_max: int, sync_every: int
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
