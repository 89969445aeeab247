from nsqfast._ext.storage.diskqueue.file_reader import FileReader

class DiskReader(FileReader):
    @property
    def depth(self) -> int: ...

def remove(path: str) -> bool: ...
