"""Producer and Consumer for programs without an event loop: scripts, Django, Spark executors.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("topic", b"body")

    with Consumer("topic", "channel", nsqd="127.0.0.1:4150") as consumer:
        for message in consumer:
            message.finish()

They take the same arguments as their namesakes in `nsqfast.client`, which run behind them in a separate thread. Several
threads may share one. They cannot be pickled: make one where it is used. After a fork an existing producer starts again
in the child, with its own connections; a consumer refuses to work there.
"""

from typing import TYPE_CHECKING

import nsqfast.client
from nsqfast.client import (
    BufferFullError,
    ClosedError,
    Config,
    ConnectError,
    ConnectionStats,
    ConsumerStats,
    InvalidNameError,
    Middleware,
    NotConnectedError,
    NsqfastError,
    OptionsError,
    OutcomeUnknownError,
    ProducerStats,
    PublishError,
    PublishRefusedError,
    RefusedError,
    UndeliveredError,
    UnsupportedError,
    WrongPeerError,
)
from nsqfast.client.sync.consumer import Consumer
from nsqfast.client.sync.message import ArrayBatch, Batch, DelayedMessage, Message
from nsqfast.client.sync.producer import Producer

if TYPE_CHECKING:
    from nsqfast.client import ChannelStats, NsqdStats, Peek, PeekedMessage, TopicStats
    from nsqfast.client.sync.admin import Admin

__all__ = [
    "Admin",
    "ArrayBatch",
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


# Hidden from type checkers, for which it would turn every misspelled name into Any.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load what few programs need when it is used for the first time."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from nsqfast.client.sync import admin

        value = globals()[name] = getattr(admin if name == "Admin" else nsqfast.client, name)
        return value
