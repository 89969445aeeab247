"""Client library for NSQ; see docs/CLIENT.md. `nsqfast.client.sync` is for programs without an event loop."""

from typing import TYPE_CHECKING, Any

from nsqfast.client.config import Config
from nsqfast.client.consumer import Consumer
from nsqfast.client.message import Batch, Message, load_array_batch
from nsqfast.client.middleware import Middleware
from nsqfast.client.producer import Producer
from nsqfast.client.stats import ConnectionStats, ConsumerStats, ProducerStats
from nsqfast.errors import (
    BufferFullError,
    ClosedError,
    ConnectError,
    InvalidNameError,
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
    from nsqfast.client.batch import ArrayBatch as ArrayBatch

# Without ArrayBatch, so that `import *` needs no numpy.
__all__ = [
    "Batch",
    "BufferFullError",
    "ClosedError",
    "Config",
    "ConnectError",
    "ConnectionStats",
    "Consumer",
    "ConsumerStats",
    "InvalidNameError",
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
        return load_array_batch(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
