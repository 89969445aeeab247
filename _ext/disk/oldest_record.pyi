from nsqfast._ext.disk.reader import DiskReader

class OldestRecord:
    def look_at(self, reader: DiskReader) -> int: ...
