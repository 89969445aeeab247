from nsqfast._ext.storage.diskqueue.reader import DiskReader

class DiskScan:
    ended: int
    error: int
    def __init__(self, reader: DiskReader) -> None: ...
