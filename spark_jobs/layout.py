"""Messages as files: <folder>/topic=T/date=YYYY-MM-DD/hour=HH/batch=B/*.parquet, in UTC.

The files hold channel, id, timestamp, timestamp_ns, attempts, nsqd and body, then the columns that a job adds; the rest
is in the names of the folders, which any reader of Hive's layout turns into columns. `batch` says who wrote the files:
writing the same batch again replaces them.
"""

import os
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from nsqfast.errors import OptionsError
from nsqfast.program.options import PlainError
from nsqfast.spark_jobs.folders import Folder, no_pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from nsqfast.spark_jobs.options import TopicOptions


PARQUET, DELTA = "parquet", "delta"
FORMATS = (PARQUET, DELTA)
PARTITIONS = ("topic", "date", "hour", "batch")
MESSAGE_DDL = (
    "topic string, channel string, id string, timestamp timestamp, timestamp_ns long, "
    "attempts int, nsqd string, body binary"
)
DELTA_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_SPARK_MAX = (4, 2)


def with_partitions(messages: "DataFrame", batch: str) -> "DataFrame":
    """Add date and hour of `timestamp`, in the session's time zone (UTC in every job), and the batch."""
    from pyspark.sql import functions

    time = functions.col("timestamp")
    return messages.withColumns(
        {
            "date": functions.date_format(time, "yyyy-MM-dd"),
            "hour": functions.date_format(time, "HH"),
            "batch": functions.lit(batch),
        }
    )


def write(messages: "DataFrame", folder: str, format_: str = PARQUET) -> None:
    """Replace those folders of topic, date, hour and batch that have rows in it; all others stay."""
    (
        messages.write.format(format_)
        .mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy(*PARTITIONS)
        .save(folder)
    )


def read(spark: "SparkSession", folders: "Sequence[str]", format_: str = PARQUET) -> "DataFrame":
    """Read what was written to these folders; all of PARTITIONS are strings. Files may lack columns that others have.

    The session must be from `open_session`, so that it does not guess types from names.
    """
    frames = [
        spark.read.format(format_).option("mergeSchema", "true").load(folder) for folder in folders
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def is_chosen(topics: "TopicOptions") -> "Column":
    """Return the condition of --topic and --topic-pattern; true for all without them."""
    from pyspark.sql import functions

    if topics.topic:
        return functions.col("topic").isin(topics.topic)
    if topics.topic_pattern:
        return functions.col("topic").rlike(topics.topic_pattern)
    return functions.lit(True)


def check_format(spark: "SparkSession", format_: str) -> None:
    """PlainError: --format delta without Delta Lake in Spark."""
    if format_ != DELTA:
        return
    from py4j.protocol import Py4JError

    try:
        # Only Spark's class loader, not py4j's, sees what --packages and --jars added.
        spark._jvm.org.apache.spark.util.Utils.classForName(DELTA_CLASS, False, False)  # noqa: SLF001
    except (Py4JError, TypeError):
        raise PlainError(_delta_missing(spark.version)) from None


def _delta_missing(version: str) -> str:
    release = tuple(int(part) for part in version.split(".")[:2])
    if release > DELTA_SPARK_MAX:
        newest = ".".join(map(str, DELTA_SPARK_MAX))
        cure = f"Delta Lake needs PySpark {newest} or older, and this is {version}: use --format parquet"
    else:
        cure = (
            "pip install delta-spark and add --conf spark.jars.packages=io.delta:delta-spark_2.13:<its version> "
            "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension --conf "
            "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog, or use --format parquet"
        )
    return f"--format delta: Delta Lake is not in this Spark; {cure}"


INGESTED = "ingested"
DELTA_LOG = "_delta_log"
TOPIC = "topic="


def read_messages(
    spark: "SparkSession", paths: Sequence[str], *extra: tuple[str, str]
) -> "DataFrame":
    """Read all of these folders, and add `ingested`: when Spark wrote the messages, if that is known.

    It is the time of the file, unless the rows have it (compact keeps it there). It is null for messages from archives:
    those were written long after they were published, by whoever loaded them. `extra`: an expression, and its name.
    OptionsError: there are no messages.
    """
    frames = [_read(spark, path, extra) for path in paths]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _read(spark: "SparkSession", path: str, extra: Sequence[tuple[str, str]]) -> "DataFrame":
    from pyspark.sql import functions as f

    check_messages(spark, path)
    rows = spark.read.option("mergeSchema", "true").parquet(no_pattern(path))
    time = f.col("_metadata.file_modification_time")
    if "file" in rows.columns:
        time = f.when(f.col("file").isNull(), time)
    if INGESTED in rows.columns:
        time = f.coalesce(f.col(INGESTED), time)
    return rows.select(
        *(name for name in rows.columns if name != INGESTED),
        time.alias(INGESTED),
        *(f.expr(expression).alias(name) for expression, name in extra),
    )


def check_messages(spark: "SparkSession", path: str) -> None:
    """OptionsError: it is not a folder of messages by topic, date, hour and batch."""
    names = Folder(spark, path).names()
    if DELTA_LOG in names:
        raise OptionsError(
            f"{path}: a table of Delta Lake, which keeps its own list of files; use what Delta has for it (OPTIMIZE)"
        )
    if not any(name.startswith(TOPIC) for name in names):
        raise OptionsError(f"{path}: no messages there, which are in folders {TOPIC}...")


def resolve(spark: "SparkSession", path: str) -> str:
    """Return a unique name of the folder: absolute, and without links if it is on this machine."""
    found = Folder(spark, path).path
    if not found.startswith("file:"):
        return found.rstrip("/")
    return "file:" + os.path.realpath("/" + unquote(found).removeprefix("file:").lstrip("/"))


def check_apart(spark: "SparkSession", inputs: Sequence[str], output: str) -> None:
    """PlainError: the output would be read the next time, or be inside the input."""
    target = resolve(spark, output)
    for path in inputs:
        source = resolve(spark, path)
        if source == target:
            raise PlainError(f"--output is the same folder as --input, {path}; give another")
        if target.startswith(f"{source}/"):
            raise PlainError(f"--output is inside --input, {path}; give a folder beside it")
        if source.startswith(f"{target}/"):
            raise PlainError(f"--input, {path}, is inside --output; give a folder beside it")
