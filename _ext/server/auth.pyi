from typing import Any

from nsqfast._ext.server.host import Host

class Auth:
    grant: Any
    def __init__(self, host: Host) -> None: ...
    def on_answer(self, grant: Any) -> None: ...
