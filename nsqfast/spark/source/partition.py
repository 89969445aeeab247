"""A task: converts the segments of one partition to batches for Spark."""

import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from nsqfast.spark.failures import errors_as_lines
from nsqfast.spark.source.offsets import LossPolicy, divide
from nsqfast.spark.source.options import SourceOptions
from nsqfast.spark.spool.identity import SpoolError, read_identity
from nsqfast.spark.spool.reading import read_batches
from nsqfast.spark.spool.segments import Segment

# A batch costs Spark as much as some thousand rows; larger ones are not worth a copy.
ROWS_MIN = 2_000
SIZE_MIN = 1 << 20


class SpoolPartition(InputPartition):
    """Segments of a spool, by receiver: their numbers, rows, bytes and endings. It is pickled to the executors."""

    def __init__(self, spool: Path, segments: Iterable[Segment], *, is_strict: bool) -> None:
        self.spool = str(spool)
        self.is_strict = is_strict
        self.numbers_by_receiver: dict[str, list[tuple[int, int, int, str]]] = {}
        for segment in segments:
            known = self.numbers_by_receiver.setdefault(segment.folder.name, [])
            known.append((segment.number, segment.row_count, segment.size, segment.ending))

    def segments(self) -> Iterator[Segment]:
        """Yield them as given, receiver by receiver."""
        for receiver, numbers in self.numbers_by_receiver.items():
            folder = Path(self.spool, receiver)
            for fields in numbers:
                yield Segment(folder, *fields)

    def __repr__(self) -> str:
        count = sum(map(len, self.numbers_by_receiver.values()))
        return f"SpoolPartition({self.spool}: {count} segments)"


def make_partitions(options: SourceOptions, segments: Sequence[Segment]) -> list[SpoolPartition]:
    """Return one partition per task."""
    return [
        SpoolPartition(options.spool, task, is_strict=options.fail_on_data_loss)
        for task in divide(segments, options.partition_count)
    ]


def read_partition(partition: SpoolPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches of exactly that schema, some columns of SCHEMA_WITH_DEATHS; at least one, perhaps empty.

    SpoolError names what cannot be read, unless the partition says to continue.
    """
    with errors_as_lines():
        is_empty = True
        for batch in merge_small(_read_segments(partition, schema)):
            is_empty = False
            yield batch
        if is_empty:
            yield pa.RecordBatch.from_pylist([], schema=schema)


def _read_segments(partition: SpoolPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    spool = Path(partition.spool)
    # Not a loss, even if losses are accepted: everything may exist on the machine that planned this.
    if read_identity(spool) is None:
        raise SpoolError(
            f"spool {spool} is not there on {socket.gethostname()}: every executor needs the folder under this path"
        )
    loss = LossPolicy(is_strict=partition.is_strict)
    for segment in partition.segments():
        yield from read_batches(
            segment, lambda text: loss.report(text, "the rest is read"), schema.names
        )


def merge_small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order. Small batches are merged; large ones are passed on unchanged."""
    small: list[pa.RecordBatch] = []
    row_count = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        batch_size = batch.nbytes
        is_large = batch.num_rows >= ROWS_MIN or batch_size >= SIZE_MIN
        if small and (is_large or row_count >= ROWS_MIN or size >= SIZE_MIN):
            yield _merged(small)
            small, row_count, size = [], 0, 0
        if is_large:
            yield batch
        else:
            small.append(batch)
            row_count += batch.num_rows
            size += batch_size
    if small:
        yield _merged(small)


def _merged(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
