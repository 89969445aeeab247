from nsqfast._ext.diskreader import DiskReader

class DiskHead:
    def look_at(self, reader: DiskReader) -> int: ...
