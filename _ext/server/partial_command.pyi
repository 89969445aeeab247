from nsqfast._ext.server.host import Host

class PartialCommand:
    def __init__(self, host: Host) -> None: ...
