"""Parquet segments: any reader of Parquet reads them, and each page has a checksum.

They are not compressed: zstd makes JSON a third as large, but packing then takes three times the processor time.
"""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from nsqfast.spark.spool.schema import SCHEMA, SCHEMAS, choose_columns

ROW_GROUP_ROWS = 10_000
_REPEATED = ["topic", "channel", "attempts", "nsqd"]  # columns of few values
# What readers skip row groups by. Statistics of ids and bodies would cost as much as all the rest.
_STATISTICS = ["topic", "timestamp", "timestamp_ns"]

# A damaged name of a column is no UTF-8, which is a ValueError.
_ERRORS = (pa.ArrowException, OSError, ValueError)


def pack(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Return the content of a file with these batches of one of SCHEMAS."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_batches(batches),
        sink,
        row_group_size=ROW_GROUP_ROWS,
        compression="none",
        use_dictionary=_REPEATED,
        write_statistics=_STATISTICS,
        write_page_checksum=True,
        store_schema=False,
    )
    return sink.getvalue()


def read(
    data: pa.Buffer, columns: Sequence[str], on_damage: Callable[[str], object], row_count: int
) -> Iterator[pa.RecordBatch]:
    """Yield a file's batches, with those columns in that order; `row_count` is what its name says.

    `on_damage` is told what cannot be read; if it returns, the rest is read.
    """
    try:
        file = _open(data)
    except _ERRORS as error:
        on_damage(f"is damaged: {row_count} messages cannot be read ({_first_line(error)})")
        return
    present = [name for name in columns if name in file.schema_arrow.names]
    first = 0
    for number in range(file.num_row_groups):
        count = file.metadata.row_group(number).num_rows
        try:
            rows = file.read_row_group(number, present or SCHEMA.names[:1])
        except _ERRORS as error:
            last = first + count - 1
            on_damage(
                f"is damaged: {count} messages (rows {first} to {last}) cannot be read ({_first_line(error)})"
            )
        else:
            count = rows.num_rows
            yield from [choose_columns(batch, columns) for batch in rows.to_batches()]
        first += count
    # Checksums cover the pages, but not what says which pages there are.
    if first != row_count:
        on_damage(f"is damaged: it has {first} of {row_count} messages")


def count_rows(data: pa.Buffer) -> int | None:
    """Return how many rows a file has; None unless all of it is sound."""
    try:
        rows: int = _open(data).read().num_rows
    except _ERRORS:
        return None
    return rows


def _open(data: pa.Buffer) -> pq.ParquetFile:
    """ArrowInvalid: it has other columns than a segment."""
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    if not any(map(file.schema_arrow.equals, SCHEMAS)):
        raise pa.ArrowInvalid(f"its columns are {', '.join(file.schema_arrow.names)}")
    return file


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
