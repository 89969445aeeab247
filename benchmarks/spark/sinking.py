"""From a DataFrame to nsqd: the sink, and pynsq in foreachPartition beside it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spark.scenario import SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.broker import Broker
    from spark.sample import Sample

PARTITIONS = 4
BATCH = 500


def make_frame(session: Any, count: int) -> Any:
    """Make bodies of SIZE bytes, at hardly any cost to Spark."""
    return session.range(0, count, 1, PARTITIONS).selectExpr(
        f"cast(lpad(cast(id as string), {SIZE}, 'x') as binary) as body"
    )


def publish(session: Any, broker: Broker, topic: str, count: int) -> Sample:
    """Use the sink's default options."""

    def write() -> None:
        (
            make_frame(session, count)
            .write.format("nsq")
            .option("topic", topic)
            .option("nsqdTcpAddresses", broker.tcp)
            .mode("append")
            .save()
        )

    return _time(write, broker, topic, count)


def publish_plainly(session: Any, broker: Broker, topic: str, count: int) -> Sample:
    """Publish MPUBs of 500 and await each, as pynsq's documentation shows."""
    address = broker.tcp

    def write() -> None:
        make_frame(session, count).foreachPartition(
            lambda rows: publish_partition(rows, address, topic)
        )

    return _time(write, broker, topic, count)


def publish_partition(rows: Iterator[Any], address: str, topic: str) -> None:
    """Runs in a worker of Spark."""
    import nsq
    from tornado.ioloop import IOLoop

    loop = IOLoop()
    loop.make_current()
    writer = nsq.Writer([address])
    failures: list[Exception] = []

    def ready() -> None:
        if writer.conns:
            send(None, b"OK")
        else:
            loop.call_later(0.01, ready)

    def send(_connection: Any, answer: Any) -> None:
        if isinstance(answer, Exception):
            failures.append(answer)
            loop.stop()
            return
        bodies = [bytes(row.body) for _, row in zip(range(BATCH), rows, strict=False)]
        if bodies:
            writer.mpub(topic, bodies, send)
        else:
            loop.stop()

    loop.add_callback(ready)
    loop.start()
    for connection in list(writer.conns.values()):
        connection.close()
    if failures:
        raise failures[0]


def _time(write: Any, broker: Broker, topic: str, count: int) -> Sample:
    broker.create(topic, ())
    begun_s = time.monotonic()
    write()
    seconds = time.monotonic() - begun_s
    found = broker.stats(topic)["message_count"]
    if found != count:
        raise RuntimeError(f"{found} of {count} messages came")
    broker.delete(topic)
    return {"rate": count / seconds, "count": count}
