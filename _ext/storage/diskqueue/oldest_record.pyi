from nsqfast._ext.storage.diskqueue.reader import DiskReader

class OldestRecord:
    def find_timestamp(self, reader: DiskReader) -> int: ...
