"""Converts what was read from nsqd to batches of the spool's schema; bodies share the memory they were read into."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nsqfast.archives.tables import id_column
from nsqfast.client.batch import ArrayBatch
from nsqfast.client.deaths import Deaths
from nsqfast.spark.spool.schema import DEATH, SCHEMA, SCHEMA_WITH_DEATHS
from nsqfast.wire.protocol import MESSAGE_ID_SIZE

PART_SIZE_MAX = (
    64 << 20
)  # bytes of bodies in a batch, unless a single one is larger; its offsets are 32-bit numbers
_KEPT_ROWS = 16_384  # of a column that repeats one text
_NS_PER_US = 1000


class ColumnMaker:
    """For one topic and channel; used by one thread at a time."""

    def __init__(self, topic: str, channel: str) -> None:
        self._topics = RepeatedText(topic)
        self._channels = RepeatedText(channel)
        self._nsqds: dict[str, RepeatedText] = {}

    def make(self, batch: ArrayBatch, deaths: Deaths | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all its rows, in parts of PART_SIZE_MAX; they are valid as long as the batch's own memory is."""
        offsets = batch.offsets
        first = 0
        while first < len(batch):
            limit = int(offsets.searchsorted(offsets[first] + PART_SIZE_MAX, side="right")) - 1
            limit = max(limit, first + 1)
            rows = self._make_part(batch, first, limit)
            if deaths is not None:
                columns = [*rows.columns, pa.array(deaths[first:limit], DEATH.type)]
                rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_DEATHS)
            yield rows
            first = limit

    def _make_part(self, batch: ArrayBatch, first: int, limit: int) -> pa.RecordBatch:
        count = limit - first
        times_ns = batch.timestamps[first:limit]
        columns = [
            self._topics.repeat(count),
            self._channels.repeat(count),
            id_column(batch.taken.identities[first * MESSAGE_ID_SIZE : limit * MESSAGE_ID_SIZE]),
            _fixed(SCHEMA.field("timestamp").type, times_ns // _NS_PER_US),
            _fixed(pa.int64(), times_ns),
            _fixed(pa.int32(), batch.attempts[first:limit].astype(np.int32)),
            self._addresses(batch.nsqd, batch.sources[first:limit]),
            _bodies(batch.bodies, batch.offsets[first : limit + 1]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _addresses(self, nsqd: Sequence[str], sources: NDArray[np.uint16]) -> pa.Array:
        if len(nsqd) == 1:
            address = nsqd[0]
            if address not in self._nsqds:
                self._nsqds[address] = RepeatedText(address)
            return self._nsqds[address].repeat(len(sources))
        return pa.array(nsqd, pa.string()).take(_fixed(pa.uint16(), sources))


class RepeatedText:
    """A column with the same text in every row."""

    def __init__(self, text: str) -> None:
        self._scalar = pa.scalar(text, pa.string())
        self._kept = pa.repeat(self._scalar, 0)

    def repeat(self, count: int) -> pa.Array:
        """Return so many rows."""
        if count > _KEPT_ROWS:
            return pa.repeat(self._scalar, count)
        if count > len(self._kept):
            # At least twice as many as before, so that few are made.
            self._kept = pa.repeat(self._scalar, min(2 * count, _KEPT_ROWS))
        return self._kept.slice(0, count)


def _fixed(kind: pa.DataType, numbers: "NDArray[np.generic]") -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(kind, len(numbers), [None, buffer], null_count=0)


def _bodies(bodies: bytes, offsets: NDArray[np.int64]) -> pa.Array:
    begin, end = int(offsets[0]), int(offsets[-1])
    ends = pa.py_buffer((offsets - begin).astype(np.int32))
    data = pa.py_buffer(bodies).slice(begin, end - begin)
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, ends, data], null_count=0)
