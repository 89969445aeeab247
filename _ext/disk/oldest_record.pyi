from nsqfast._ext.disk.reader import DiskReader

class DiskHead:
    def look_at(self, reader: DiskReader) -> int: ...
