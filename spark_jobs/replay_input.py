"""The messages that replay publishes: those chosen of the input, each to its topic, without duplicates."""

import os
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from nsqfast.archives import FileFinder, FileNames
from nsqfast.errors import OptionsError
from nsqfast.spark_jobs import layout
from nsqfast.spark_jobs.folders import Folder
from nsqfast.spark_jobs.replay_options import Options
from nsqfast.tools.replay.options import BODY, ID, NONE
from nsqfast.tools.shared.program import log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

DELTA_LOG = "_delta_log"
NS_PER_HOUR = 3600 * 1_000_000_000
# When a message was published, or the start of the hour if only that is known.
ORDER = "order_ns"


@dataclass(slots=True)
class Input:
    """`messages` has topic, body and ORDER. `read` counts the chosen ones, and those that cannot be published."""

    messages: "DataFrame"
    read: "Observation"
    damaged: int  # unreadable records


def open_input(spark: "SparkSession", options: Options) -> Input:
    """OptionsError: there is nothing, or --dedupe cannot tell these messages apart."""
    from pyspark.sql import Observation, functions

    rows, damaged = _read(spark, options)
    rows = rows.where(layout.is_chosen(options))
    hour = functions.concat_ws(" ", "date", "hour")
    hour_s = functions.unix_timestamp(hour, "yyyy-MM-dd HH")
    rows = rows.withColumn("hour_ns", hour_s * 1_000_000_000)
    rows = _within(rows, options)
    rows = rows.withColumn(ORDER, functions.coalesce("timestamp_ns", "hour_ns"))
    rows = rows.withColumn("topic", _mapped(options.topics))
    read = Observation()
    size = functions.octet_length("body")
    is_bad = (size == 0) | (size > options.max_msg_size)
    rows = rows.observe(
        read,
        functions.count(functions.lit(1)).alias("read"),
        functions.count_if(is_bad).alias("bad"),
    ).where(~is_bad)
    return Input(_unique(rows, options).select("topic", "body", ORDER), read, damaged)


def _read(spark: "SparkSession", options: Options) -> "tuple[DataFrame, int]":
    folders: dict[str, list[str]] = {}  # by format
    words: list[str] = []
    for path in options.input:
        format_ = _format_of(spark, path)
        (folders.setdefault(format_, []) if format_ else words).append(path)
    frames, damaged = [], 0
    for format_, paths in folders.items():
        layout.check_format(spark, format_)
        frames.append(layout.read(spark, paths, format_).select(*_COLUMNS))
    if words:
        if options.dedupe == ID:
            _check_ids(words)
        frame, damaged = _read_archives(spark, words)
        if frame is not None:
            frames.append(frame.select(*_COLUMNS))
    if not frames:
        raise OptionsError(f"--input: no messages in {', '.join(options.input)}")
    return reduce(lambda one, other: one.unionByName(other), frames), damaged


_COLUMNS = ("topic", "date", "hour", "id", "timestamp_ns", "body")


def _format_of(spark: "SparkSession", path: str) -> str:
    """Return PARQUET or DELTA for a folder of `layout`, wherever that is; "" for anything else."""
    if "*" in path and "://" not in path:
        return ""
    names = Folder(spark, path).names()
    if DELTA_LOG in names:
        return layout.DELTA
    return layout.PARQUET if any(name.startswith("topic=") for name in names) else ""


def _check_ids(words: list[str]) -> None:
    from nsqfast.archives.files import LINES

    for archive in FileFinder(FileNames()).find(words):
        if archive.format == LINES:
            raise OptionsError(f"{archive.path}: plain lines have no ids; use --dedupe=body")


def _read_archives(spark: "SparkSession", words: list[str]) -> "tuple[DataFrame | None, int]":
    """Read everything readable of files of nsq_to_file; return the number of unreadable records, and report each."""
    from nsqfast.spark_jobs.archive_frame import archive_rows
    from nsqfast.spark_jobs.archive_inspection import inspect_all
    from nsqfast.spark_jobs.archive_rows import ArchiveFile

    files = []
    for archive in FileFinder(FileNames()).find(words):
        path = os.path.realpath(archive.path)
        facts, status = archive.facts, os.stat(path)  # noqa: PTH116 - as it was found
        files.append(
            ArchiveFile(
                path, archive.format, archive.packer, status.st_size, status.st_mtime_ns,
                facts.topic or "", facts.begin_ns,
            )
        )  # fmt: skip
    found = inspect_all(spark, files)
    for one in found:
        for damage in one.damages:
            log.warning("%s", damage)
    damaged = sum(one.damage_count for one in found)
    return (archive_rows(spark, found) if any(one.rows for one in found) else None), damaged


def _within(rows: "DataFrame", options: Options) -> "DataFrame":
    """Apply --since and --until. A message without a time of its own is included if its hour overlaps the interval."""
    from pyspark.sql import functions

    if not (options.since or options.until):
        return rows
    time, hour = functions.col("timestamp_ns"), functions.col("hour_ns")
    exact = (time >= options.since_ns) & (time < options.until_ns)
    touching = (hour + NS_PER_HOUR > options.since_ns) & (hour < options.until_ns)
    # Folders in which no time can match are left out by name.
    return rows.where(touching & functions.coalesce(exact, functions.lit(True)))


def _mapped(topics: dict[str, str]) -> "Column":
    from pyspark.sql import functions

    topic = functions.col("topic")
    if not topics:
        return topic
    pairs = [functions.lit(text) for pair in topics.items() for text in pair]
    return functions.coalesce(functions.create_map(*pairs)[topic], topic)


def _unique(rows: "DataFrame", options: Options) -> "DataFrame":
    """Keep one of each group of equal messages. Those without an id equal no others."""
    from pyspark.sql import functions

    if options.dedupe == NONE:
        return rows
    if options.dedupe == BODY:
        key = functions.sha2("body", 256)
        return rows.withColumn("key", key).dropDuplicates(["topic", "key"])
    number = functions.when(
        functions.coalesce(functions.col("id"), functions.lit("")) == "",
        functions.monotonically_increasing_id(),
    )
    return rows.withColumn("key", number).dropDuplicates(["topic", "id", "timestamp_ns", "key"])
