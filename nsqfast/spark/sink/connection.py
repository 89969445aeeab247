"""Connections of a worker process. They outlive a task: Spark reuses the process for the next task and batch.

An event loop in a thread of its own answers heartbeats while Spark has nothing to publish.
"""

import atexit
import sys

from nsqfast.client import Producer
from nsqfast.client.sync.loop_thread import LoopThread
from nsqfast.errors import RefusedError
from nsqfast.spark.logs import log
from nsqfast.spark.sink.options import SinkOptions

KEPT_MAX = 4  # with different options, in one process


class SinkConnection:
    """Connects to all nsqds of the options; `producer` belongs to the loop thread.

    RefusedError: every nsqd refuses us. An unreachable one is tried again and again.
    """

    def __init__(self, options: SinkOptions) -> None:
        self.loop_thread = LoopThread("nsqfast spark sink")
        try:
            self.producer = self.loop_thread.call(_connect(options))
        except BaseException:
            self.loop_thread.stop()
            raise

    def close(self) -> None:
        """Disconnect, without waiting for answers."""
        try:
            self.loop_thread.call(self.producer.finish())
        finally:
            self.loop_thread.stop()


async def _connect(options: SinkOptions) -> Producer:
    producer = Producer(
        *options.addresses,
        config=options.client_config(),
        # The publisher retries, and counts that.
        retries=0,
        timeout_s=options.timeout_ms / 1000,
        close_timeout_s=0.0,
        # Its window limits what waits for an answer.
        buffer_count_max=sys.maxsize,
        buffer_bytes_max=sys.maxsize,
    )
    try:
        await producer.start()
    except RefusedError as error:
        raise RefusedError(f"{error} ({', '.join(options.addresses)})") from None
    return producer


_kept: dict[SinkOptions, SinkConnection] = {}


def borrow_connection(options: SinkOptions) -> SinkConnection:
    """Return the process's connection, or a new one. After an error, call drop_connection."""
    found = _kept.pop(options, None)
    if found is None or not found.loop_thread.is_ours:
        found = SinkConnection(options)
    while len(_kept) >= KEPT_MAX:
        drop_connection(next(iter(_kept)))
    _kept[options] = found  # behind those that were used less recently
    return found


def drop_connection(options: SinkOptions) -> None:
    """Disconnect, if there is one."""
    found = _kept.pop(options, None)
    if found is not None and found.loop_thread.is_ours:
        try:
            found.close()
        except Exception:
            log.exception("a connection could not be closed")


@atexit.register
def _close_all() -> None:
    """Disconnect when a process ends without being killed."""
    for options in list(_kept):
        drop_connection(options)
