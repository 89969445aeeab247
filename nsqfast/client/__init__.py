"""Client library for NSQ; see docs/CLIENT.md. `nsqfast.client.sync` is for programs without an event loop."""

from typing import TYPE_CHECKING, Any

from nsqfast.client.config import Config
from nsqfast.client.consumer import Consumer
from nsqfast.client.delayed import DelayedMessage
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
    UnsupportedError,
    WrongPeerError,
)

if TYPE_CHECKING:
    from nsqfast.client.admin import (
        Admin,
        ChannelStats,
        NsqdStats,
        Peek,
        PeekedMessage,
        TopicStats,
    )
    from nsqfast.client.batch import ArrayBatch as ArrayBatch

_ADMIN_ANSWERS = {"ChannelStats", "NsqdStats", "Peek", "PeekedMessage", "TopicStats"}

# Without ArrayBatch, so that `import *` needs no numpy.
__all__ = [
    "Admin",
    "Batch",
    "BufferFullError",
    "ChannelStats",
    "ClosedError",
    "Config",
    "ConnectError",
    "ConnectionStats",
    "Consumer",
    "ConsumerStats",
    "DelayedMessage",
    "InvalidNameError",
    "Message",
    "Middleware",
    "NotConnectedError",
    "NsqdStats",
    "NsqfastError",
    "OptionsError",
    "OutcomeUnknownError",
    "Peek",
    "PeekedMessage",
    "Producer",
    "ProducerStats",
    "PublishError",
    "PublishRefusedError",
    "RefusedError",
    "TopicStats",
    "UndeliveredError",
    "UnsupportedError",
    "WrongPeerError",
]


def __getattr__(name: str) -> Any:
    """Load what few programs need only when it is named: importing numpy takes a moment, and Admin a little one."""
    if name == "ArrayBatch":
        return load_array_batch(name)
    if name == "Admin" or name in _ADMIN_ANSWERS:
        from nsqfast.client import admin

        return getattr(admin, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
