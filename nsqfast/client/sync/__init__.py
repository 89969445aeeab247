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
    WrongPeerError,
)
from nsqfast.client.sync.consumer import Consumer
from nsqfast.client.sync.message import ArrayBatch, Batch, Message
from nsqfast.client.sync.producer import Producer

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
