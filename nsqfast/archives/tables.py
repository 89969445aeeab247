"""Parquet and Arrow: tables with the columns topic, id, timestamp_ns, attempts, nsqd and body, and perhaps death.

Only the body is required, and death is not read. Bodies stay in Arrow's memory: one block and the positions in it.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nsqfast.archives.records import NO_TIME, Column, Damage, OnDamage, Records
from nsqfast.program.extras import needs
from nsqfast.wire.names import is_valid_name
from nsqfast.wire.protocol import MESSAGE_ID_SIZE

if TYPE_CHECKING:
    from types import ModuleType

COLUMNS = ("topic", "id", "timestamp_ns", "body")
ALL_COLUMNS = (*COLUMNS, "attempts", "nsqd")
ROWS_MAX = 65536
BATCHES_MAX = 1 << 62  # of a stream: the number is unknown
MAGIC = b"ARROW1"  # of a file; a stream has none
STREAM_OFFSET = 8  # where the stream of batches begins in a file


def load_arrow() -> "ModuleType":
    """Pyarrow, with what is used of it; PackageMissingError if it is not there."""
    with needs("reading Parquet or Arrow", "arrow"):
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    module: ModuleType = pa
    return module


def id_column(identities: bytes) -> Any:
    """The column `id` of messages that a client took. nsqd's are hex digits; others that are not ASCII become hex."""
    pa = load_arrow()

    starts = range(0, len(identities), MESSAGE_ID_SIZE)
    if not identities.isascii():
        ids = [identities[start : start + MESSAGE_ID_SIZE] for start in starts]
        return pa.array([i.decode() if i.isascii() else i.hex() for i in ids], pa.string())
    ends = np.arange(0, len(identities) + 1, MESSAGE_ID_SIZE, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(identities)]
    return pa.Array.from_buffers(pa.string(), len(starts), buffers, null_count=0)


def death_type() -> Any:
    """Of the column `death`, which is null for what is no dead letter, or none of nsqfast-nsqd; names and units are
    those of its /topic/peek."""
    pa = load_arrow()
    text, count, number = pa.string(), pa.int32(), pa.int64()
    where = [("reason", text), ("topic", text), ("channel", text)]
    how = [("failures", count), ("attempts", count), ("client", text), ("error", text)]
    return pa.struct([*where, *how, ("first_id", text), ("published", number), ("died", number)])


class TableFile:
    """One file; `read_share` is how much of it has been read, from 0 to 1."""

    def __init__(
        self, path: str, block_size: int, on_damage: OnDamage, *, has_all: bool = False
    ) -> None:
        self._columns = ALL_COLUMNS if has_all else COLUMNS
        self._pa = load_arrow()
        # The errors that pyarrow raises for malformed bytes.
        self._errors = (self._pa.ArrowException, OSError, ValueError)
        self._path = path
        self._block_size = block_size
        self._on_damage = on_damage
        self.read_share = 0.0

    def _tell(self, place: str, reason: object) -> None:
        text = " ".join(str(reason).split())
        self._on_damage(Damage(self._path, place, text))

    def read_parquet(self, position: int) -> Iterator[Records]:
        """Read from that row on."""
        try:
            file = self._pa.parquet.ParquetFile(self._path)
            names = file.schema_arrow.names
        except self._errors as error:
            self._tell("its footer", f"damaged Parquet, nothing of it was read ({error})")
            return
        with file:
            if not self._has_body(names):
                return
            columns = [name for name in self._columns if name in names]
            first = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if first + rows > position:
                    yield from self._row_group(file, group, first, columns, position)
                first += rows
                self.read_share = (group + 1) / file.num_row_groups

    def _row_group(
        self, file: Any, group: int, first: int, columns: list[str], position: int
    ) -> Iterator[Records]:
        about = file.metadata.row_group(group)
        row_size = max(1, about.total_byte_size // max(1, about.num_rows))
        batch_rows = min(ROWS_MAX, max(1, self._block_size // row_size))
        row = first
        try:
            batches = file.iter_batches(batch_rows, row_groups=[group], columns=columns)
            for batch in batches:
                if row + len(batch) > position:
                    yield from self._records(batch, row, position)
                row += len(batch)
        except self._errors as error:
            lost = first + about.num_rows - row
            self._tell(f"row {row}", f"damaged Parquet, {lost} rows lost ({error})")
            return
        # A header with too small a number causes no error.
        if (lost := first + about.num_rows - row) > 0:
            self._tell(f"row {row}", f"damaged Parquet, {lost} rows lost (its pages have fewer)")

    def read_arrow(self, position: int) -> Iterator[Records]:
        """Read from that row on. Of a file without its end, read the batches before that."""
        pa = self._pa
        # Not memory-mapped: an unreadable disk would then end the process.
        with pa.OSFile(self._path) as source:
            names, count, batch_of = self._open_arrow(source)
            if names is None or not self._has_body(names):
                return
            row = 0
            for number in range(count):
                try:
                    batch = batch_of(number)
                    if batch is None:
                        return
                    batch.validate(full=True)
                except self._errors as error:
                    self._tell(f"row {row}, batch {number}", f"damaged Arrow data ({error})")
                    return
                if row + len(batch) > position:
                    yield from self._records(batch, row, position)
                row += len(batch)
                self.read_share = min(1.0, source.tell() / max(1, source.size()))

    def _open_arrow(self, source: Any) -> tuple[list[str] | None, int, Callable[[int], Any]]:
        """The columns, the largest number of batches, and a function that returns the batch of a number, or None."""
        if source.read(len(MAGIC)) != MAGIC:
            return self._open_stream(source, 0)
        try:
            file = self._pa.ipc.open_file(source)
            names = file.schema.names  # what is no UTF-8 raises here
        except self._errors as error:
            self._tell("its footer", f"damaged Arrow file, read up to the damage ({error})")
            return self._open_stream(source, STREAM_OFFSET)
        return names, file.num_record_batches, file.get_batch

    def _open_stream(
        self, source: Any, offset: int
    ) -> tuple[list[str] | None, int, Callable[[int], Any]]:
        """Like `_open_arrow` for a stream, whose batches come one after the other."""
        source.seek(offset)
        try:
            stream = self._pa.ipc.open_stream(source)
            names = stream.schema.names
        except self._errors as error:
            self._tell("its schema", f"damaged Arrow data, nothing of it was read ({error})")
            return None, 0, lambda _: None
        return names, BATCHES_MAX, lambda _: next(stream, None)

    def _has_body(self, names: list[str]) -> bool:
        if "body" in names:
            return True
        self._tell("its schema", f"no column body, only {', '.join(names) or 'none at all'}")
        return False

    def _records(self, batch: Any, first: int, position: int) -> Iterator[Records]:
        """The records of a batch that begins with row `first`, from `position` on."""
        batch = batch.slice(max(0, position - first))
        first = max(first, position)
        positions = np.arange(first, first + len(batch), dtype=np.int64)
        try:
            bodies = self._column(batch, "body")
            assert bodies is not None
            topics, numbers = self._topics(batch)
            yield Records(
                bodies,
                positions,
                first + len(batch),
                "row",
                topics,
                numbers,
                self._timestamps_ns(batch),
                self._column(batch, "id"),
                self._attempts(batch),
                self._column(batch, "nsqd") if "nsqd" in self._columns else None,
            )
        except self._errors as error:
            self._tell(f"row {first}", f"{len(batch)} rows lost ({error})")

    def _column(self, batch: Any, name: str) -> Column | None:
        """A column of strings; null becomes empty."""
        pa = self._pa
        if name not in batch.schema.names:
            return None
        texts = batch.column(name).cast(pa.large_binary())
        _, offsets, data = texts.buffers()
        places = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        # pyarrow shows its bytes as signed numbers.
        block = b"" if data is None else np.frombuffer(data, np.uint8)
        return Column(block, places[:-1], places[1:])

    def _timestamps_ns(self, batch: Any) -> Any:
        pa = self._pa
        if "timestamp_ns" not in batch.schema.names:
            return None
        column = batch.column("timestamp_ns")
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ns"))
        times = column.cast(pa.int64()).fill_null(NO_TIME)
        return np.ascontiguousarray(times.to_numpy(zero_copy_only=False))

    def _attempts(self, batch: Any) -> Any:
        pa = self._pa
        if "attempts" not in self._columns or "attempts" not in batch.schema.names:
            return None
        numbers = batch.column("attempts").cast(pa.int32()).fill_null(0)
        return numbers.to_numpy(zero_copy_only=False)

    def _topics(self, batch: Any) -> tuple[list[str] | None, Any]:
        """The names, and the index of each row's name; an empty name means none."""
        pa = self._pa
        if "topic" not in batch.schema.names:
            return None, None
        column = batch.column("topic").cast(pa.string()).fill_null("").dictionary_encode()
        names = column.dictionary.to_pylist()
        if wrong := [name for name in names if name and not is_valid_name(name)]:
            raise pa.ArrowInvalid(f"topic {wrong[0]!r:.80} is not valid")
        return names, column.indices.cast(pa.int32()).to_numpy(zero_copy_only=False)
