"""Sends the publishes of one task to nsqd: a window of them without an answer, each retried if that may help.

The task's thread adds them; the loop thread sends them, waits for answers, and counts. The counts may be read once
`finish` has returned or raised. Connections of a worker process outlive a task: Spark reuses the process for the next
task and batch. An event loop in a thread of its own answers heartbeats while Spark has nothing to publish.
"""

import asyncio
import atexit
import dataclasses
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Self

from nsqfast.client import Producer
from nsqfast.client.sync.loop_thread import LoopThread
from nsqfast.errors import (
    NotConnectedError,
    OutcomeUnknownError,
    PublishError,
    PublishRefusedError,
    RefusedError,
)
from nsqfast.spark.runtime import log
from nsqfast.spark.sink.options import SinkOptions
from nsqfast.spark.sink.rows import Publish

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


@dataclass(slots=True)
class Counts:
    """`rows` and `size` (bytes of bodies) have an nsqd's OK; `publishes` counts their MPUBs, PUBs and DPUBs.

    `resent_rows` were sent again because a connection broke before the answer, and may be duplicates. `retried_rows`
    were published by an attempt of a task that was not its first, and may be duplicates, too. `unknown_rows` were sent
    and never answered: they may be there although the task failed.
    """

    rows: int = 0
    size: int = 0
    publishes: int = 0
    resent_rows: int = 0
    retried_rows: int = 0
    unknown_rows: int = 0

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the sum of several."""
        found = cls()
        for part in parts:
            for field in dataclasses.fields(cls):
                value = getattr(found, field.name) + getattr(part, field.name)
                setattr(found, field.name, value)
        return found

    def __str__(self) -> str:
        text = f"{self.rows} rows of {self.size} bytes in {self.publishes} publishes"
        if self.resent_rows:
            text += f"; {self.resent_rows} rows were sent again and may be there twice"
        if self.retried_rows:
            text += f"; {self.retried_rows} rows are of retried tasks and may be there twice"
        if self.unknown_rows:
            text += f"; {self.unknown_rows} more were sent without an answer and may be there"
        return text


FIRST_PAUSE_S = 0.2  # after a temporary refusal; each further pause is four times as long
PAUSE_FACTOR = 4
PAUSE_S_MAX = 5.0
ANSWER_MARGIN_S = 30.0

# What nsqd says about a limit that the options do not match: its code, words in it, and the option.
_LIMITS = (
    ("E_BAD_MESSAGE", "too big", "maxMsgSize"),
    ("E_BAD_BODY", "too big", "maxBodySize and maxBatchBytes"),
    ("E_INVALID", "out of range", "maxReqTimeout"),
)


class SinkPublisher:
    """Call `put` for all, then `finish`; after an error call nothing more."""

    def __init__(self, connection: SinkConnection, options: SinkOptions) -> None:
        self.counts = Counts()
        self._loop_thread = connection.loop_thread
        self._producer = connection.producer
        self._options = options
        self._room = threading.BoundedSemaphore(options.window)
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: Exception | None = None
        attempts = options.retries + 1
        self._wait_s_max = attempts * (options.timeout_ms / 1000 + PAUSE_S_MAX) + ANSWER_MARGIN_S

    def put(self, publish: Publish) -> None:
        """Send it after all earlier ones; wait while the window is full. Raises an earlier error."""
        self._take_room()
        if self._error is not None:
            self._room.release()
            self.finish()
        self._loop_thread.post(self._begin, publish)

    def finish(self) -> None:
        """Return when everything was published; raise the first error."""
        self.wait_answers()
        if self._error is not None:
            raise self._error

    def wait_answers(self) -> None:
        """Return when every publish has an answer, or was given up."""
        for _ in range(self._options.window):
            self._take_room()
        for _ in range(self._options.window):
            self._room.release()

    def _take_room(self) -> None:
        """Every publish ends by itself, but a thread that has died must not be waited for."""
        if not self._room.acquire(timeout=self._wait_s_max):
            raise RuntimeError(f"a publish did not end in {self._wait_s_max:g} s")

    # -- in the loop thread's thread

    def _begin(self, publish: Publish) -> None:
        if self._error is not None:
            self._room.release()
            return
        task = asyncio.ensure_future(self._publish(publish))
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self._error = self._error or RuntimeError("the connection was closed")
        elif (error := task.exception()) is not None:
            self._error = self._error or _as_exception(error)
        self._room.release()

    def _publish(self, publish: Publish) -> Coroutine[Any, Any, None]:
        if publish.delays_ms is not None:
            return self._publish_later(publish, publish.delays_ms)
        return self._deliver(
            lambda: self._producer.send_encoded(publish.topic, publish.bodies),
            publish.topic,
            publish.count,
            publish.size,
        )

    async def _publish_later(self, publish: Publish, delays_ms: list[int]) -> None:
        """Send one DPUB per row, all at once: NSQ has no command for several messages with a delay."""
        results = await asyncio.gather(
            *[
                self._deliver_later(publish.topic, body, delay_ms)
                for body, delay_ms in zip(publish.bodies.bodies(), delays_ms, strict=True)
            ],
            return_exceptions=True,
        )
        for result in results:
            if result is not None:
                raise result

    async def _deliver_later(self, topic: str, body: bytes, delay_ms: int) -> None:
        delay_s = delay_ms / 1000
        await self._deliver(
            lambda: self._producer.publish_later(topic, body, delay_s), topic, 1, len(body)
        )

    async def _deliver(
        self, send: Callable[[], Awaitable[None]], topic: str, rows: int, size: int
    ) -> None:
        """Retry until an nsqd has taken it; raise PublishError in one line if none does."""
        pause_s = FIRST_PAUSE_S
        sent_again = 0
        while True:
            try:
                await send()
                break
            except PublishError as error:
                is_passing = isinstance(error, PublishRefusedError) and error.is_passing
                # If its disk is full it may have taken a part.
                may_be_there = is_passing or isinstance(error, OutcomeUnknownError)
                if not may_be_there or sent_again == self._options.retries:
                    self.counts.unknown_rows += rows if may_be_there or sent_again else 0
                    raise self._explain(error, topic) from None
            sent_again += 1
            if is_passing:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * PAUSE_FACTOR, PAUSE_S_MAX)
        self.counts.resent_rows += sent_again * rows
        self.counts.rows += rows
        self.counts.size += size
        self.counts.publishes += 1

    def _explain(self, error: PublishError, topic: str) -> PublishError:
        """Return the same error with what the operator needs to know."""
        where = ", ".join(self._options.addresses)
        text = f"topic {topic}: {error.reason}"
        if isinstance(error, PublishRefusedError):
            advice = "".join(
                f"; see the option {option}"
                for code, words, option in _LIMITS
                if error.code == code and words in error.reason
            )
            # Its code comes first in the text.
            return PublishRefusedError(f"{error.reason} (topic {topic}, {where}{advice})")
        if isinstance(error, OutcomeUnknownError):
            return OutcomeUnknownError(f"{text} ({where}, tried {self._options.retries + 1} times)")
        if isinstance(error, NotConnectedError):
            return NotConnectedError(f"topic {topic}: no nsqd could be reached: {self._errors()}")
        return error

    def _errors(self) -> str:
        timeout_s = self._options.timeout_ms / 1000
        errors = self._producer.stats().errors
        # One may be available again by now.
        listed = [
            f"{address}: {errors.get(address, 'connected again')}"
            for address in self._options.addresses
        ]
        return f"{'; '.join(listed)} (tried for {timeout_s:g} s)"


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(repr(error))
