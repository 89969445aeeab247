"""The records of an archive as Arrow record batches, if Spark's own readers cannot read them, or not exactly.

It runs in Spark's Python workers: from `ArchiveFile`, which can be pickled, to `pyarrow.RecordBatch`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from nsqfast.archives import Archive, Column, Damage, NameFacts, Records, open_archive
from nsqfast.archives.records import NO_TIME, OnDamage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


# Spark compares the first batch's schema with its own: nullable fields, no large types, no unsigned numbers.
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("date", pa.string()),
        pa.field("hour", pa.string()),
        pa.field("id", pa.string()),
        pa.field("timestamp_ns", pa.int64()),
        pa.field("attempts", pa.int32()),
        pa.field("nsqd", pa.string()),
        pa.field("body", pa.binary()),
        pa.field("file", pa.string()),
    ]
)
DDL = (
    "topic string, date string, hour string, id string, timestamp_ns bigint, attempts int, "
    "nsqd string, body binary, file string"
)
NS_PER_HOUR = 3_600_000_000_000
NO_TOPIC = "it says no topic, nor does the file's name; --assume-topic gives one"
NO_HOUR = "it says no time, nor does the file's name; --assume-time gives one"


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file, with defaults for what its records lack."""

    path: str
    format: str
    packer: str
    size: int
    modified_ns: int
    topic: str  # of records without one; "": those are damaged
    begin_ns: int | None  # their time if they have none; None: those are damaged
    position: int = 0  # where its records begin: a byte of the plain text, or a row
    is_last_whole: bool = False  # a last line without a newline is a record

    @property
    def archive(self) -> Archive:
        """Return it as the reader needs it."""
        return Archive(self.path, self.format, self.packer, self.size, NameFacts())

    def to_json(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)


def read_archive_records(file: ArchiveFile, on_damage: OnDamage) -> Iterator[Records]:
    """Yield everything readable. Unreadable parts, and a file that cannot be opened, are reported as damage."""
    try:
        with open_archive(
            file.archive,
            on_damage,
            position=file.position,
            is_last_whole=file.is_last_whole,
            has_all=True,
        ) as reader:
            yield from reader.records
    except OSError as error:
        on_damage(Damage(file.path, "the file", error.strerror or str(error)))


def read_batches(file: ArchiveFile, on_damage: OnDamage) -> Iterator[pa.RecordBatch]:
    """Yield all its records that have a topic and a time, as rows of SCHEMA."""
    for records in read_archive_records(file, on_damage):
        if not len(records):
            continue
        try:
            yield _batch(file, records, placeable(file, records, on_damage))
        except (pa.ArrowException, ValueError) as error:
            place = f"{len(records)} records before {records.unit} {records.end}"
            on_damage(Damage(file.path, place, f"they are no rows of messages ({error})"))


def placeable(file: ArchiveFile, records: Records, on_damage: OnDamage) -> NDArray[np.bool_] | None:
    """Return which of them have a topic and a time; None: all."""
    lacking = np.zeros(len(records), np.bool_)
    if not file.topic:
        names = np.array([not name for name in records.topics or [""]])
        lacking |= names[_topic_numbers(records)]
        _tell(file, records, lacking, NO_TOPIC, on_damage)
    if file.begin_ns is None:
        timeless = _times_ns(records) == NO_TIME
        _tell(file, records, timeless & ~lacking, NO_HOUR, on_damage)
        lacking |= timeless
    return ~lacking if lacking.any() else None


def _tell(
    file: ArchiveFile,
    records: Records,
    lacking: NDArray[np.bool_],
    reason: str,
    on_damage: OnDamage,
) -> None:
    """Report a run of records once: a file whose name says nothing would fill the report."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], lacking, [False])).astype(np.int8)))
    for first, end in edges.reshape(-1, 2).tolist():
        count = end - first
        what = reason if count == 1 else f"{count} records from here on: {reason}"
        on_damage(Damage(file.path, records.place(first), what))


def _topic_numbers(records: Records) -> NDArray[np.int32]:
    if records.topic_numbers is None:
        return np.zeros(len(records), np.int32)
    return records.topic_numbers


def _times_ns(records: Records) -> NDArray[np.int64]:
    if records.timestamps_ns is None:
        return np.full(len(records), NO_TIME)
    return records.timestamps_ns


def _batch(file: ArchiveFile, records: Records, chosen: NDArray[np.bool_] | None) -> pa.RecordBatch:
    count = len(records)
    times_ns = _times_ns(records)
    dates, hours = _hours(np.where(times_ns == NO_TIME, file.begin_ns or 0, times_ns))
    topics = pa.array([name or file.topic for name in records.topics or [""]], pa.string())
    attempts = np.zeros(count, np.int32) if records.attempts is None else records.attempts
    columns = [
        topics.take(pa.array(_topic_numbers(records))),
        dates,
        hours,
        _texts(records.ids, count),
        pa.array(times_ns, mask=times_ns == NO_TIME),
        pa.array(attempts, mask=attempts == 0),
        _texts(records.nsqd, count),
        _binary(records.bodies),
        pa.repeat(pa.scalar(file.path), count),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return batch if chosen is None else batch.filter(pa.array(chosen))


def _hours(times_ns: NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
    """Return date and hour in UTC, as the folders are named."""
    hours, numbers = np.unique(times_ns // NS_PER_HOUR, return_inverse=True)
    names = [str(name) for name in hours.astype("datetime64[h]")]
    indices = pa.array(numbers.astype(np.int32))
    dates = pa.array([name[:10] for name in names], pa.string())
    return dates.take(indices), pa.array([name[11:] for name in names], pa.string()).take(indices)


def _texts(column: Column | None, count: int) -> pa.Array:
    """An empty one becomes null."""
    if column is None:
        return pa.nulls(count, pa.string())
    texts = _binary(column).cast(pa.string())
    return pa.compute.if_else(pa.array(column.sizes > 0), texts, pa.scalar(None, pa.string()))


def _binary(column: Column) -> pa.Array:
    """Concatenate the values; copy them only if there is something between them."""
    ends = np.cumsum(column.sizes)
    offsets = np.zeros(len(column) + 1, np.int32)
    if not len(column):
        return pa.array([], pa.binary())
    first, size = int(column.starts[0]), int(ends[-1])
    if size > np.iinfo(np.int32).max:
        raise ValueError(f"{size} bytes of bodies in one block; 2 GiB is the limit")
    offsets[1:] = ends
    block = np.frombuffer(column.data, np.uint8)
    is_joined = size == int(column.ends[-1]) - first
    data = block[first : first + size] if is_joined else _joined(column, block)
    return pa.Array.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
    )


def _joined(column: Column, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Select the bytes within the values: with +1 at each start and -1 at each end, the running sum is 1 there."""
    some = column.sizes > 0  # no two of these begin, or end, at the same place
    steps = np.zeros(len(data) + 1, np.int8)
    steps[column.starts[some]] += 1
    steps[column.ends[some]] -= 1
    return data[np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)]


# The Spark source for archives that Spark's own readers do not read: rows of `archive_rows` in local files.
#
# The option `files` is a list of lists of `ArchiveFile` as JSON: the files of each task.


NAME = "nsqfast-archives"


@dataclass
class FilesPartition(InputPartition):
    """The files of one task."""

    files: list[ArchiveFile]


class ArchiveSource(DataSource):
    """It ignores damage, which the inspection has reported."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> str:
        """The schema of read_batches."""
        return DDL

    def reader(self, schema: "StructType") -> DataSourceReader:
        """Return a reader of all its files."""
        del schema
        return ArchiveReader(json.loads(self.options["files"]))


class ArchiveReader(DataSourceReader):
    """One partition for each list."""

    def __init__(self, parts: list[list[dict[str, object]]]) -> None:
        self._parts = parts

    def partitions(self) -> Sequence[InputPartition]:
        """Return them as given."""
        return [FilesPartition([ArchiveFile(**one) for one in part]) for part in self._parts]  # type: ignore[arg-type]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Read one file after the other."""
        assert isinstance(partition, FilesPartition)
        for file in partition.files:
            yield from read_batches(file, lambda _: None)


def read_archives(spark: "SparkSession", files: Sequence[ArchiveFile]) -> "DataFrame":
    """Return their rows, with about as many tasks as run at a time."""
    spark.dataSource.register(ArchiveSource)
    parts = [[one.to_json() for one in part] for part in share_out(files, slots(spark))]
    return spark.read.format(NAME).option("files", json.dumps(parts)).load()


def slots(spark: "SparkSession") -> int:
    """Return how many tasks run at a time, about."""
    return max(1, int(spark.sparkContext.defaultParallelism))


def share_out(files: Sequence[ArchiveFile], count: int) -> list[list[ArchiveFile]]:
    """Return at most so many lists of about the same size, none empty: each file, the largest first, goes to the
    smallest."""
    parts: list[list[ArchiveFile]] = [[] for _ in range(min(count, len(files)))]
    sizes = [0] * len(parts)
    for file in sorted(files, key=lambda one: one.size, reverse=True):
        least = sizes.index(min(sizes))
        parts[least].append(file)
        sizes[least] += file.size + 1
    return parts
