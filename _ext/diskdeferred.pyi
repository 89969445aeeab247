from nsqfast._ext.deadlines import Deadlines
from nsqfast._ext.diskreader import DiskReader

class DiskDeferred:
    def __init__(self, queue: DiskReader, deadlines: Deadlines) -> None: ...
