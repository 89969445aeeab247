"""Client library for NSQ; see docs/CLIENT.md. `nsqfast.client.sync` is for programs without an event loop."""

from typing import TYPE_CHECKING, Any

from nsqfast.client.config import Config
from nsqfast.client.consumer import Consumer
from nsqfast.client.message import Batch, Message
from nsqfast.client.middleware import Middleware
from nsqfast.client.producer import Producer
from nsqfast.client.stats import ConnectionStats, ConsumerStats, ProducerStats
from nsqfast.errors import (
    BufferFullError,
    ClosedError,
    ConnectError,
    NotConnectedError,
    NsqfastError,
    OptionsError,
    OutcomeUnknownError,
    PublishError,
    PublishRefusedError,
    RefusedError,
    UndeliveredError,
    WrongPeerError,
)

if TYPE_CHECKING:
    from nsqfast.client.batch import ArrayBatch

__all__ = [
    "ArrayBatch",
    "Batch",
    "BufferFullError",
    "ClosedError",
    "Config",
    "ConnectError",
    "ConnectionStats",
    "Consumer",
    "ConsumerStats",
    "Message",
    "Middleware",
    "NotConnectedError",
    "NsqfastError",
    "OptionsError",
    "OutcomeUnknownError",
    "Producer",
    "ProducerStats",
    "PublishError",
    "PublishRefusedError",
    "RefusedError",
    "UndeliveredError",
    "WrongPeerError",
]


def __getattr__(name: str) -> Any:
    """Load ArrayBatch only when it is named: importing numpy takes a moment."""
    if name == "ArrayBatch":
        from nsqfast.client.batch import ArrayBatch

        return ArrayBatch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
