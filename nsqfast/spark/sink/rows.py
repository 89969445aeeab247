"""Cuts Arrow batches into publishes: bodies stay one block of bytes, and no row becomes a Python object.

The columns are checked on the driver, before any task runs. Rows are grouped by topic, those with a delay separately,
and keep their order within a group.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nsqfast._ext.protocol.publish_command import Encoded
from nsqfast._ext.protocol.records import encode
from nsqfast.errors import NsqfastError, OptionsError
from nsqfast.program.extras import needs
from nsqfast.spark.sink.options import SinkOptions
from nsqfast.wire.names import is_valid_name
from nsqfast.wire.protocol import LENGTH_SIZE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


BODY = "body"
TOPIC = "topic"
DEFER_MS = "defer_ms"

# Spark's names for the types, as in `simpleString`.
_TYPES = {
    BODY: ("string", "binary"),
    TOPIC: ("string",),
    DEFER_MS: ("int", "bigint"),
}
_SHAPE = "a row is body (string or binary), and may have topic (string) and defer_ms (int or long)"


def check_columns(schema: "StructType", options: SinkOptions) -> None:
    """OptionsError: it cannot be published."""
    found: dict[str, str] = {}
    for field in schema.fields:
        # A string may have a collation: "string collate UNICODE".
        kind = field.dataType.simpleString().partition(" ")[0]
        if field.name not in _TYPES:
            raise OptionsError(f"column {field.name} cannot be published: {_SHAPE}")
        if field.name in found:
            raise OptionsError(f"column {field.name} is there twice")
        if kind not in _TYPES[field.name]:
            raise OptionsError(
                f"column {field.name} is {kind}, not {' or '.join(_TYPES[field.name])}: {_SHAPE}"
            )
        found[field.name] = kind
    if BODY not in found:
        raise OptionsError(f"column body is missing: {_SHAPE}")
    if TOPIC not in found and not options.topic:
        raise OptionsError("option topic is missing, and there is no column topic")


with needs("nsqfast.spark", "spark"):
    import pyarrow as pa

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

NO_TOPIC = -1
SHOWN_LENGTH = 80


class RowError(NsqfastError):
    """A row that nsqd would refuse; nothing of its batch was sent."""


@dataclass(frozen=True, slots=True)
class Publish:
    """One MPUB, or with delays one DPUB per message."""

    topic: str
    bodies: Encoded
    delays_ms: list[int] | None = None

    @property
    def count(self) -> int:
        """The number of messages."""
        return self.bodies.count

    @property
    def size(self) -> int:
        """The size of the bodies alone."""
        return len(self.bodies.data) - LENGTH_SIZE * (1 + self.bodies.count)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of a batch: where each body begins and ends in `data`, its index in `topics`, and its delay."""

    data: NDArray[np.uint8]
    starts: Ints
    ends: Ints
    topics: list[str]
    numbers: Ints
    delays_ms: Ints


def read_rows(batch: Any, options: SinkOptions, first: int = 0) -> Rows:
    """Read a pyarrow.RecordBatch; RowError names the first row that cannot be published.

    `first` is the number of its first row within the partition.
    """
    names = batch.schema.names
    bodies = batch.column(names.index(BODY))
    check = _Check(first, len(batch))
    check.refuse(_nulls(bodies), lambda _: "the body is null")
    data, starts, ends = _texts(bodies)
    sizes = ends - starts
    check.refuse(sizes == 0, lambda _: "the body is empty, which nsqd does not take")
    check.refuse(
        sizes > options.message_size_max,
        lambda row: (
            f"the body has {sizes[row]} bytes, more than maxMsgSize ({options.message_size_max}); "
            "if nsqd's --max-msg-size is higher, set that option to it"
        ),
    )
    topics, numbers = [options.topic], np.zeros(len(batch), np.int64)
    if TOPIC in names:
        topics, numbers = _topics(batch.column(names.index(TOPIC)), options.topic, check)
    delays_ms = np.zeros(len(batch), np.int64)
    if DEFER_MS in names:
        delays_ms = _delays(batch.column(names.index(DEFER_MS)), options.defer_ms_max, check)
    return Rows(data, starts, ends, topics, numbers, delays_ms)


class _Check:
    """Raises for the first invalid row."""

    def __init__(self, first: int, count: int) -> None:
        self._first = first
        self._count = count

    def refuse(self, wrong: Mask, reason: Callable[[int], str]) -> None:
        """`reason` returns the text for a row of the batch."""
        if not wrong.any():
            return
        row = int(wrong.argmax())
        raise RowError(
            f"row {self._first + row} of the partition: {reason(row)} "
            f"({np.count_nonzero(wrong)} such rows in its batch of {self._count}, of which nothing was sent)"
        )


def _nulls(column: Any) -> Mask:
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    found: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _texts(column: Any) -> tuple[NDArray[np.uint8], Ints, Ints]:
    """Return the data block of a column of strings or bytes, and where each value begins and ends in it."""
    kind = column.type
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width: np.dtype[Any] = np.dtype(np.int64)
    else:
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            column = column.cast(pa.binary())
        width = np.dtype(np.int32)
    _, offsets, block = column.buffers()
    if not len(column) or offsets is None:
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    places = np.frombuffer(offsets, width, len(column) + 1, column.offset * width.itemsize)
    places = places.astype(np.int64, copy=False)
    data = np.zeros(0, np.uint8) if block is None else np.frombuffer(block, np.uint8)
    return data, places[:-1], places[1:]


def _topics(column: Any, default: str, check: _Check) -> tuple[list[str], Ints]:
    """Return the names, and each row's index into them."""
    known = column.dictionary_encode()
    topics: list[str] = known.dictionary.to_pylist()
    numbers: Ints = known.indices.fill_null(NO_TOPIC).to_numpy(zero_copy_only=False)
    numbers = numbers.astype(np.int64)
    missing = numbers == NO_TOPIC
    if missing.any():
        if not default:
            check.refuse(missing, lambda _: "the topic is null, and there is no option topic")
        if default not in topics:
            topics.append(default)
        numbers[missing] = topics.index(default)
    invalid = [number for number, topic in enumerate(topics) if not is_valid_name(topic)]
    if invalid:
        check.refuse(
            np.isin(numbers, invalid),
            lambda row: (
                f"{topics[numbers[row]][:SHOWN_LENGTH]!r} is no name of a topic: 1 to 64 of . a-z A-Z 0-9 _ -"
            ),
        )
    return topics, numbers


def _delays(column: Any, limit_ms: int, check: _Check) -> Ints:
    """Return milliseconds; null is 0, which means no delay."""
    delays_ms: Ints = column.fill_null(0).to_numpy(zero_copy_only=False)
    delays_ms = delays_ms.astype(np.int64, copy=False)
    check.refuse(
        (delays_ms < 0) | (delays_ms > limit_ms),
        lambda row: (
            f"defer_ms is {delays_ms[row]}, not from 0 to maxReqTimeout ({limit_ms} ms); "
            "if nsqd's --max-req-timeout is higher, set that option to it"
        ),
    )
    return delays_ms


def cut_publishes(rows: Rows, options: SinkOptions) -> Iterator[Publish]:
    """Yield as few publishes as contain all rows; a body that is too large for an MPUB goes alone."""
    if not len(rows.starts):
        return
    is_deferred = rows.delays_ms > 0
    if len(rows.topics) == 1 and not is_deferred.any():
        yield from _encode(rows, rows.topics[0], slice(None), options, is_deferred=False)
        return
    for number, kind, part in _groups(rows.numbers, is_deferred):
        yield from _encode(rows, rows.topics[number], part, options, is_deferred=kind)


def _groups(numbers: Ints, is_deferred: Mask) -> Iterator[tuple[int, bool, Ints]]:
    """Yield topic, whether deferred, and the rows, in their order."""
    keys = numbers * 2 + is_deferred
    order = np.argsort(keys, kind="stable")
    borders = np.flatnonzero(np.diff(keys[order])) + 1
    for part in np.split(order, borders):
        key = int(keys[part[0]])
        yield key // 2, bool(key % 2), part


def _encode(
    rows: Rows, topic: str, part: slice | Ints, options: SinkOptions, *, is_deferred: bool
) -> Iterator[Publish]:
    starts, ends, delays_ms = rows.starts[part], rows.ends[part], rows.delays_ms[part]
    all_chosen = np.ones(len(starts), np.uint8)
    first = 0
    while True:
        bodies, limit = encode(
            rows.data,
            starts,
            ends,
            all_chosen,
            first,
            options.batch_rows_max,
            options.batch_size_max,
        )
        if bodies is None:
            return
        yield Publish(topic, bodies, delays_ms[first:limit].tolist() if is_deferred else None)
        first = limit
