"""Reads messages that were written in the layout of ingest, and checks such folders."""

import os
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from nsqfast.errors import OptionsError
from nsqfast.program.options import PlainError
from nsqfast.spark_jobs.folders import Folder, no_pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INGESTED = "ingested"
MODIFIED = "_modified"
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
