from nsqfast._ext.diskreader import DiskReader

class DiskScan:
    ended: int
    error: int
    def __init__(self, reader: DiskReader) -> None: ...
