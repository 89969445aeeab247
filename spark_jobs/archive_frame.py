"""Converts inspected archives to rows in the layout of ingest."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nsqfast.spark_jobs import layout
from nsqfast.spark_jobs.archive_inspection import Inspection
from nsqfast.spark_jobs.archive_rows import ArchiveFile, read_archives

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NS_PER_S = 1_000_000_000


def write_archives(
    spark: "SparkSession", found: Sequence[Inspection], output: str, batch: str
) -> tuple[int, int]:
    """Write them as this batch; return the number of messages, and the bytes of their bodies, as Spark counted them."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    counted = Observation()
    rows = archive_rows(spark, found).observe(
        counted,
        f.count(f.col("topic")).alias("rows"),
        f.sum(f.octet_length("body")).alias("bytes"),
    )
    layout.write(rows.withColumn("batch", f.lit(batch)), output)
    return counted.get["rows"], counted.get["bytes"] or 0


def archive_rows(spark: "SparkSession", found: Sequence[Inspection]) -> "DataFrame":
    """Return all columns except the batch."""
    from pyspark.sql import functions as f

    some = [one for one in found if one.rows]
    texts = [one.file for one in some if one.is_text]
    others = [one.file for one in some if not one.is_text]
    frames = ([_text_rows(spark, texts)] if texts else []) + (
        [read_archives(spark, others)] if others else []
    )
    rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    return rows.select(
        "topic",
        f.lit(None).cast("string").alias("channel"),
        "id",
        f.timestamp_micros(f.expr("timestamp_ns div 1000")).alias("timestamp"),
        "timestamp_ns",
        "attempts",
        "nsqd",
        "body",
        "file",
        "date",
        "hour",
    )


def _text_rows(spark: "SparkSession", files: Sequence[ArchiveFile]) -> "DataFrame":
    """Read them with Spark's own reader. Without lineSep it would also split at a carriage return, and remove that."""
    from pyspark.sql import functions as f

    lines = (
        spark.read.option("lineSep", "\n")
        .option("recursiveFileLookup", "true")  # or a folder named a=b would become a column
        .text([f"file://{file.path}" for file in files])
        .select(f.col("value").cast("binary").alias("body"), f.col("_metadata.file_path"))
        .where(f.octet_length("body") > 0)
    )
    # The file of every row must be found: a row without a topic would not be counted.
    facts = spark.createDataFrame(
        [(uri, *_make_file_columns(file)) for file in files for uri in _uris(file.path)],
        "file_path string, topic string, date string, hour string, file string",
    )
    return lines.join(f.broadcast(facts), "file_path", "left").select(
        "topic",
        "date",
        "hour",
        f.lit(None).cast("string").alias("id"),
        f.lit(None).cast("long").alias("timestamp_ns"),
        f.lit(None).cast("int").alias("attempts"),
        f.lit(None).cast("string").alias("nsqd"),
        "body",
        "file",
    )


def _uris(path: str) -> tuple[str, str]:
    """Return the forms in which Spark may write a file's path."""
    return f"file:{path}", f"file://{path}"


def _make_file_columns(file: ArchiveFile) -> tuple[str, str, str, str]:
    assert file.begin_ns is not None, f"{file.path} has records without a time"
    time = datetime.fromtimestamp(file.begin_ns // NS_PER_S, UTC)
    return file.topic, f"{time:%Y-%m-%d}", f"{time:%H}", file.path
