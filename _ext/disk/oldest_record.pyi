from nsqfast._ext.disk.reader import DiskReader

class OldestRecord:
    def find_timestamp(self, reader: DiskReader) -> int: ...
