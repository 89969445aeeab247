from collections.abc import Callable
from typing import Any

from nsqfast._ext.broker.breaker import Breaker
from nsqfast._ext.broker.dead_letters import REASONS as REASONS
from nsqfast._ext.broker.dead_letters import DeadLetters
from nsqfast._ext.broker.message_queue import MessageQueue
from nsqfast._ext.broker.retry import Retry
from nsqfast._ext.core.histogram import Histogram
from nsqfast._ext.core.latency import Latency
from nsqfast._ext.storage.engine import ChannelStore, Store

class Channel(MessageQueue):
    topic_name: str
    name: str
    ephemeral: bool
    paused: bool
    message_count: int
    delivery_count: int
    finish_count: int
    requeue_count: int
    timeout_count: int
    depth: int
    in_flight_count: int
    deferred_count: int
    max_in_flight: int
    breaker: Breaker | None
    retry: Retry | None
    failures_max: int
    dead_letters: DeadLetters | None
    dead_counts: dict[str, int]
    taken_counts: tuple[int, int, int]
    latency: Latency | None
    histogram: Histogram | None
    def __init__(
        self,
        topic_name: str,
        name: str,
        store: Store,
        backlog: ChannelStore,
        on_last_left: Callable[[str], None],
    ) -> None: ...
    def pause(self) -> None: ...
    def unpause(self) -> None: ...
    def set_flow(self, max_in_flight: int, interval_ns: int) -> None: ...
    def empty(self) -> None: ...
    @property
    def consumer_count(self) -> int: ...
    def held_ns(self) -> int: ...
    def consumers(self) -> list[Any]: ...
