"""Producer and Consumer for programs without an event loop: scripts, Django, Spark executors.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("topic", b"body")

    with Consumer("topic", "channel", nsqd="127.0.0.1:4150") as consumer:
        for message in consumer:
            message.finish()

They take what their namesakes in `nsqfast.client` take, which run in a thread of their own behind them. Several threads
may use one at once. They are not pickled: make one where it is used. After a fork a producer that was made
before begins anew in the child, with connections of its own; a consumer refuses to go on there.
"""

from nsqfast.client import (
    BufferFullError,
    ClosedError,
    Config,
    ConnectError,
    ConnectionStats,
    ConsumerStats,
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
