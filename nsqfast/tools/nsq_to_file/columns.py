"""Batches as Arrow record batches; bodies, offsets, times and attempts share the batch's memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nsqfast.client.batch import ArrayBatch
from nsqfast.tools.nsq_to_file.rows import MakePieces
from nsqfast.wire.protocol import MESSAGE_ID_SIZE

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("timestamp_ns", pa.int64(), nullable=False),
        pa.field("attempts", pa.uint16(), nullable=False),
        pa.field("nsqd", pa.string(), nullable=False),
        pa.field("body", pa.large_binary(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows; `size` is the size of their bodies as lines."""

    rows: pa.RecordBatch
    size: int


class ColumnPieces:
    """The rows of one batch, without copying their bodies."""

    def __init__(
        self, rows: pa.RecordBatch, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> None:
        self._rows = rows
        self._ends = offsets + np.arange(len(offsets))
        self.count = rows.num_rows
        self.next = 0

    def take(self, size_max: int) -> Piece:
        """Take the next rows, up to the one that exceeds this size."""
        begin = int(self._ends[self.next])
        within = int(np.searchsorted(self._ends, begin + size_max, side="right"))
        last = min(within, self.count)
        piece = Piece(self._rows.slice(self.next, last - self.next), int(self._ends[last]) - begin)
        self.next = last
        return piece


def column_pieces(topic: str) -> MakePieces:
    """Convert each batch to the columns of SCHEMA."""

    def make(batch: ArrayBatch) -> ColumnPieces:
        count = len(batch)
        columns = [
            pa.repeat(pa.scalar(topic), count),
            _ids(batch.taken.identities, count),
            _numbers(pa.int64(), batch.taken.timestamps, count),
            _numbers(pa.uint16(), batch.taken.attempts, count),
            _addresses(batch.nsqd, batch.taken.sources, count),
            pa.Array.from_buffers(
                pa.large_binary(),
                count,
                [None, pa.py_buffer(batch.taken.offsets), pa.py_buffer(batch.bodies)],
                null_count=0,
            ),
        ]
        return ColumnPieces(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), batch.offsets)

    return make


def _numbers(kind: pa.DataType, numbers: bytes, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(numbers)], null_count=0)


def _ids(identities: bytes, count: int) -> pa.Array:
    """nsqd's ids are hex digits; other ids that are not ASCII are shown in hex."""
    if not identities.isascii():
        ids = [
            identities[row : row + MESSAGE_ID_SIZE]
            for row in range(0, count * MESSAGE_ID_SIZE, MESSAGE_ID_SIZE)
        ]
        return pa.array([i.decode() if i.isascii() else i.hex() for i in ids], pa.string())
    ends = np.arange(0, (count + 1) * MESSAGE_ID_SIZE, MESSAGE_ID_SIZE, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(identities)], null_count=0
    )


def _addresses(nsqd: Sequence[str], sources: bytes, count: int) -> pa.Array:
    if len(nsqd) == 1:
        return pa.repeat(pa.scalar(nsqd[0]), count)
    return pa.array(nsqd, pa.string()).take(_numbers(pa.uint16(), sources, count))
