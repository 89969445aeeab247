"""One topic: from the rows of a consumer to MPUBs, and from their answers to FIN or REQ.

A row is finished only after its destination has answered OK. No row becomes a Python object, unless a filter has to
examine it.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nsqfast._ext.client.consume_connection import NOT_TRIED
from nsqfast._ext.protocol.records import encode
from nsqfast.client import (
    ArrayBatch,
    Consumer,
    NotConnectedError,
    NsqfastError,
    PublishRefusedError,
)
from nsqfast.tools.nsq_to_nsq.destinations import Destination, Destinations
from nsqfast.tools.nsq_to_nsq.json_filter import JsonFilter, Verdict
from nsqfast.tools.shared.program import log

if TYPE_CHECKING:
    import asyncio

ROWS_MAX = 2500
MPUB_COUNT_MAX = 1000

# These errors concern the messages, not the destination.
TOO_BIG = frozenset(("E_BAD_MESSAGE", "E_BAD_BODY"))


@dataclass(frozen=True, slots=True)
class Block:
    """The bodies of a batch to publish: if `chosen[i]`, the body of row i is `data[starts[i]:ends[i]]`."""

    batch: ArrayBatch
    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    chosen: NDArray[np.uint8]

    def between(self, first: int, limit: int) -> "Block":
        """The same block without the rows outside this range."""
        chosen = np.zeros_like(self.chosen)
        chosen[first:limit] = self.chosen[first:limit]
        return Block(self.batch, self.data, self.starts, self.ends, chosen)

    def without(self, rows: NDArray[np.int64]) -> "Block":
        """The same block without these rows."""
        chosen = self.chosen.copy()
        chosen[rows] = 0
        return Block(self.batch, self.data, self.starts, self.ends, chosen)


@dataclass(frozen=True, slots=True)
class BlockPart:
    """One publish: the chosen rows of a block from `first` up to `limit`."""

    block: Block
    first: int
    limit: int
    number: int  # index of its destination
    size: int  # of the MPUB, after its size field
    sent_s: float

    @property
    def rows(self) -> NDArray[np.int64]:
        """The indices of its rows."""
        return chosen_rows(self.block, self.first, self.limit)


def chosen_rows(block: Block, first: int, limit: int) -> NDArray[np.int64]:
    """The indices of the chosen rows in a range."""
    return np.flatnonzero(block.chosen[first:limit]) + first


class Relay:
    """From `topic` to `destination_topic`."""

    def __init__(
        self,
        topic: str,
        destination_topic: str,
        json_filter: JsonFilter,
        destinations: Destinations,
    ) -> None:
        self._topic = topic
        self._destination_topic = destination_topic
        self._filter = json_filter
        self._destinations = destinations

    async def run(self, consumer: Consumer) -> None:
        """Run until the consumer stops."""
        async for batch in consumer.arrays(ROWS_MAX, 0.0):
            self._publish(self._filtered(batch) if self._filter else whole(batch))

    # -- filtering

    def _filtered(self, batch: ArrayBatch) -> Block:
        """Answer the rows that do not pass."""
        results = [self._filter.judge(batch.body(row)) for row in range(len(batch))]
        dropped = [row for row, result in enumerate(results) if result is Verdict.DROP]
        failed = [row for row, result in enumerate(results) if result is Verdict.FAIL]
        if dropped:
            batch.finish(dropped)
        if failed:
            batch.requeue(failed, delay_s=None, backoff=True)
        bodies = [b"" if isinstance(result, Verdict) else result for result in results]
        chosen = np.array([not isinstance(result, Verdict) for result in results], np.uint8)
        if not self._filter.rewrites:
            return Block(batch, batch.bodies, batch.offsets[:-1], batch.offsets[1:], chosen)
        ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        return Block(batch, b"".join(bodies), starts, ends, chosen)

    # -- sending

    def _publish(self, block: Block) -> None:
        rows = chosen_rows(block, 0, len(block.chosen))
        begin = 0
        for number, count in self._destinations.share_out(len(rows)):
            self._send(block, int(rows[begin]), int(rows[begin + count - 1]) + 1, number)
            begin += count
        if begin < len(rows):
            self._requeue(block.batch, rows[begin:], "no destination is connected")

    def _send(self, block: Block, first: int, limit: int, number: int) -> None:
        """Send the chosen rows of that range, in as many MPUBs as needed."""
        destination = self._destinations[number]
        block = self._without_too_big(block, first, limit, destination)
        while first < limit:
            bodies, after = encode(
                block.data,
                block.starts[:limit],
                block.ends[:limit],
                block.chosen[:limit],
                first,
                MPUB_COUNT_MAX,
                destination.mpub_size_max,
            )
            if bodies is not None:
                part = BlockPart(block, first, after, number, len(bodies.data), time.monotonic())
                try:
                    future = destination.send(self._destination_topic, bodies)
                except NsqfastError as error:
                    self._fail(part, error)
                else:
                    future.add_done_callback(partial(self._take_answer, part))
            first = after

    def _without_too_big(
        self, block: Block, first: int, limit: int, destination: Destination
    ) -> Block:
        """Leave out messages that the destination is known to refuse."""
        sizes = block.ends[first:limit] - block.starts[first:limit]
        is_too_big = (sizes > destination.message_size_max) & (block.chosen[first:limit] != 0)
        rows = np.flatnonzero(is_too_big) + first
        if not len(rows):
            return block
        text = f"it takes messages of up to {destination.message_size_max} bytes"
        for row in rows.tolist():
            self._refuse(block, row, destination, text)
        return block.without(rows)

    # -- answers

    def _take_answer(self, part: BlockPart, future: "asyncio.Future[None]") -> None:
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            self._requeue(part.block.batch, part.rows, "the end", NOT_TRIED)
        elif error is None:
            rows = part.rows
            part.block.batch.finish(rows)
            took_s = time.monotonic() - part.sent_s
            self._destinations.note_answer(part.number, took_s, len(rows), is_ok=True)
        elif isinstance(error, PublishRefusedError) and error.code in TOO_BIG:
            self._divide(part, error)
        elif isinstance(error, NotConnectedError) and not self._destinations.is_alone:
            # It was not sent, so another one may have it at once.
            self._destinations.note_loss(part.number)
            self._publish(part.block.between(part.first, part.limit))
        else:
            self._fail(part, error)

    def _divide(self, part: BlockPart, error: PublishRefusedError) -> None:
        """One message is too large, or all together are: none was taken, so split them, to spare the others."""
        destination = self._destinations[part.number]
        destination.learn(error)
        rows = part.rows
        sizes = part.block.ends[rows] - part.block.starts[rows]
        if len(rows) == 1:
            self._refuse(part.block, int(rows[0]), destination, str(error))
        elif part.size > destination.mpub_size_max or sizes.max() > destination.message_size_max:
            self._send(part.block, part.first, part.limit, part.number)
        else:
            middle = int(rows[len(rows) // 2])
            self._send(part.block, part.first, middle, part.number)
            self._send(part.block, middle, part.limit, part.number)

    def _refuse(self, block: Block, row: int, destination: Destination, text: str) -> None:
        """Only this message is at fault, so nothing else slows down."""
        size = int(block.ends[row] - block.starts[row])
        name = block.batch.ids[row].decode("ascii", "backslashreplace")
        log.error(
            "%s: %s refuses message %s of %d bytes, it is requeued: %s",
            self._topic,
            destination.address,
            name,
            size,
            text,
        )
        block.batch.requeue([row], delay_s=None, reason=f"{destination.address}: {text}")

    def _fail(self, part: BlockPart, error: BaseException) -> None:
        rows = part.rows
        took_s = time.monotonic() - part.sent_s
        self._destinations.note_answer(part.number, took_s, len(rows), is_ok=False)
        text = f"{self._destinations[part.number].address}: {error}"
        self._requeue(part.block.batch, rows, text)

    def _requeue(
        self, batch: ArrayBatch, rows: NDArray[Any], why: str, reason: str | None = None
    ) -> None:
        """`reason`: what nsqd keeps of it, if that is not `why`."""
        count = batch.requeue(rows, delay_s=None, backoff=True, reason=reason or why)
        if count:
            log.error("%s: %d messages are requeued: %s", self._topic, count, why)


def whole(batch: ArrayBatch) -> Block:
    """All rows unchanged."""
    chosen = np.ones(len(batch), np.uint8)
    return Block(batch, batch.bodies, batch.offsets[:-1], batch.offsets[1:], chosen)
