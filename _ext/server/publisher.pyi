from nsqfast._ext.broker.consumer import Waiter
from nsqfast._ext.server.auth import Auth
from nsqfast._ext.server.partial_command import PartialCommand

class Publisher(Waiter):
    def __init__(self, command: PartialCommand, auth: Auth) -> None: ...
    def pub_counts(self) -> dict[str, int]: ...
