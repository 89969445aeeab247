from nsqfast._ext.broker.dead_letters import DeadLetters
from nsqfast._ext.broker.topics import Topics

from nsqfast.wire.names import EPHEMERAL as EPHEMERAL

DEFAULT_NAME: str

def name_dead_letters(pattern: str, topic: str, channel: str) -> str: ...

class DeadLetterTopic(DeadLetters):
    def __init__(
        self,
        topics: Topics,
        topic_name: str,
        channel_name: str,
        name: str,
        *,
        takes_dropped: bool = ...,
    ) -> None: ...
