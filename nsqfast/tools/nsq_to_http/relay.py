"""From the channel to the destinations: a fixed number of requests at a time, and an answer to every message."""

import asyncio
import contextlib
import random

from nsqfast._ext.client.consume_connection import NOT_TRIED
from nsqfast.client import Batch, Config, Consumer, Message
from nsqfast.client.config import seconds
from nsqfast.tools.nsq_to_http.batch import Piece, pieces
from nsqfast.tools.nsq_to_http.delivery import Delivery, StoppedError, UndeliveredError
from nsqfast.tools.nsq_to_http.options import Options
from nsqfast.tools.shared.program import log

GRACE_S = 30.0  # for requests under way at a stop; as in Go
DRAIN_S = 1.0  # for messages that came before the stop; those not begun by then are handed back


class Relay:
    """Call `run` between the consumer's start and its stop."""

    def __init__(
        self, consumer: Consumer, config: Config, options: Options, delivery: Delivery
    ) -> None:
        self._consumer = consumer
        self._delivery = delivery
        self._sample = options.sample
        self._batch = options.batch
        self._format = options.batch_format
        self._batch_timeout_s = options.batch_timeout_ns / 1e9
        self._concurrency = min(options.n, options.max_in_flight)
        self._delay_s = seconds(config.default_requeue_delay)
        self._delay_s_max = seconds(config.max_requeue_delay)
        self._name = f"[{options.topic}/{options.channel}]"
        self._working: set[asyncio.Task[None]] = set()
        self._drained: asyncio.Event | None = (
            None  # set at the end, when nothing is in flight any more
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set and the rest is done. Requests that then exceed GRACE_S stay unanswered."""
        work = self._work_in_batches if self._batch > 1 else self._work
        count = 1 if self._batch > 1 else self._concurrency
        tasks = [asyncio.create_task(work()) for _ in range(count)]
        stop = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if stopping.is_set():
                await self._drain()
                self._consumer.request_stop()
                await asyncio.wait(tasks, timeout=GRACE_S)
        finally:
            stop.cancel()
            for task in (*tasks, *self._working):
                task.cancel()
            ends = await asyncio.gather(*tasks, *self._working, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _drain(self) -> None:
        """Take no more messages, and give earlier ones a moment."""
        self._consumer.pause()
        self._drained = asyncio.Event()
        self._check_drained()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drained.wait(), DRAIN_S)

    def _check_drained(self) -> None:
        """At the end somebody waits for the last answer."""
        if self._drained is not None and not self._consumer.stats().in_flight:
            self._drained.set()

    async def _work(self) -> None:
        async for message in self._consumer:
            if self._sample >= 1.0 or self._is_sampled():
                await self._deliver_one(message)
            else:
                message.finish()
            if self._drained is not None:
                self._check_drained()

    async def _deliver_one(self, message: Message) -> None:
        try:
            await self._delivery.deliver(message.body, 0)
        except UndeliveredError as error:
            self._requeue(Batch([message]), error)
        except StoppedError:
            message.requeue(0, backoff=False, reason=NOT_TRIED)
        else:
            message.finish()

    def _is_sampled(self) -> bool:
        return random.random() <= self._sample  # noqa: S311 - no secret

    async def _work_in_batches(self) -> None:
        free = asyncio.Semaphore(self._concurrency)
        batches = self._consumer.batches(self._batch, self._batch_timeout_s)
        while True:
            await free.acquire()
            batch = await anext(batches, None)
            if batch is None:
                break
            self._check_working()
            self._working.add(asyncio.create_task(self._work_on(batch.messages, free)))
        await asyncio.gather(*self._working)

    def _check_working(self) -> None:
        """Forget tasks that are done; an exception in one of them ends the tool."""
        for task in [task for task in self._working if task.done()]:
            self._working.discard(task)
            task.result()

    async def _work_on(self, messages: list[Message], free: asyncio.Semaphore) -> None:
        try:
            if self._sample < 1.0:
                messages = self._finish_unsampled(messages)
            for piece in pieces(messages, self._format):
                await self._deliver_piece(piece)
        finally:
            free.release()
            self._check_drained()

    def _finish_unsampled(self, messages: list[Message]) -> list[Message]:
        """Finish messages outside the sample; returns those to send."""
        chosen = []
        for message in messages:
            if self._is_sampled():
                chosen.append(message)
            else:
                message.finish()
        return chosen

    async def _deliver_piece(self, piece: Piece) -> None:
        try:
            await self._delivery.deliver(piece.body, piece.size)
        except UndeliveredError as error:
            self._requeue(piece.messages, error)
        except StoppedError:
            piece.messages.requeue(0, backoff=False, reason=NOT_TRIED)
        else:
            piece.messages.finish()

    def _requeue(self, batch: Batch, error: UndeliveredError) -> None:
        """Requeue as one failure for the consumer's backoff, and not sooner than the destination wants it."""
        messages = batch.messages
        first = messages[0].id.decode("ascii", "backslashreplace")
        what = f"msg {first}" if len(messages) == 1 else f"{len(messages)} messages from {first} on"
        log.error("%s %s; requeued: %s", self._name, error, what)
        for number, message in enumerate(messages):
            delay_s = min(self._delay_s * message.attempts, self._delay_s_max)
            wait_s = max(delay_s, error.wait_s)
            message.requeue(wait_s, backoff=number == 0, reason=str(error))
