from nsqfast._ext.disk.deadlines import Deadlines
from nsqfast._ext.disk.reader import DiskReader

class DiskDeferred:
    def __init__(self, queue: DiskReader, deadlines: Deadlines) -> None: ...
