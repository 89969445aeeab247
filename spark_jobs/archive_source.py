"""The Spark source for archives that Spark's own readers do not read: rows of `archive_rows` in local files.

The option `files` is a list of lists of `ArchiveFile` as JSON: the files of each task.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from nsqfast.spark_jobs.archive_rows import DDL, ArchiveFile, read_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
