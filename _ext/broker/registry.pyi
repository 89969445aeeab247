from asyncio import Future
from collections.abc import Callable
from ssl import SSLContext
from typing import Any

from nsqfast._ext.broker.durability import Durability
from nsqfast._ext.broker.topics import Topics
from nsqfast._ext.broker.turn import Turn
from nsqfast._ext.core.heap import Timers
from nsqfast._ext.core.memory import Memory
from nsqfast._ext.core.settings import Settings

class Registry:
    settings: Settings
    memory: Memory
    timers: Timers
    durability: Durability
    topics: Topics
    turn: Turn
    checkpoints: Any
    is_draining: bool
    tls_context: SSLContext | None
    find_deaths: Callable[[str, list[int]], Future[bytes]] | None
    authorizer: Callable[[Any, bytes, Callable[[Any, bool], None]], Any] | None
    def __init__(
        self, options: object, make_topics: Callable[[Durability], Topics] = ...
    ) -> None: ...
