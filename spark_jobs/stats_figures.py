"""The figures of stats: one pass over the messages, reading only the size of their bodies; its flags; its Parquet."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.program import extras
from nsqfast.program.options import STRING, PlainError, option
from nsqfast.spark_jobs import layout
from nsqfast.spark_jobs.folders import Folder
from nsqfast.spark_jobs.options import InputOptions, JobOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SUFFIXES = (".png", ".svg")


@dataclass(slots=True)
class Options(InputOptions, JobOptions):
    """As on the command line."""

    # fmt: off
    output: str = option(STRING, "", "folder for the figures as Parquet, with a row for each topic and hour")
    chart: str = option(STRING, "", "file for a chart of the messages per hour by topic, as .png or .svg")
    html: str = option(STRING, "", "deprecated: file for a page with that chart; it goes with 0.4")
    # fmt: on

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured."""
        JobOptions.check(self)
        self.check_input()
        if self.chart and Path(self.chart).suffix.lower() not in SUFFIXES:
            raise PlainError(
                f"--chart: {self.chart}: its name has to end in {' or '.join(SUFFIXES)}"
            )
        for flag, path in (("--chart", self.chart), ("--html", self.html)):
            if path:
                extras.check(flag, "chart")


GROUP = ("topic", "date", "hour")
PERCENTILES = (0.5, 0.95, 0.99)
DDL = (
    "topic string, date string, hour string, messages long, bytes long, body_bytes_max long, duplicates long, "
    "redelivered long, attempts_mean double, attempts_max int, delay_p50_s double, delay_p95_s double, "
    "delay_p99_s double, delay_max_s double"
)


@dataclass(frozen=True, slots=True)
class Hour:
    """The figures of one topic and hour. None: the messages lack them, such as those loaded from lines."""

    topic: str
    date: str
    hour: str
    messages: int  # including duplicates
    bytes: int  # of the bodies
    body_bytes_max: int
    duplicates: int  # further ones of the same topic, id and timestamp_ns
    redelivered: int  # with more than one attempt
    attempts_mean: float | None
    attempts_max: int | None
    # From publishing to the time when Spark wrote them; for duplicates, the first.
    delay_p50_s: float | None
    delay_p95_s: float | None
    delay_p99_s: float | None
    delay_max_s: float | None


def count_messages(spark: "SparkSession", options: Options) -> list[Hour]:
    """Return them by topic and time. OptionsError: there are none."""
    messages = layout.read_messages(spark, options.input).where(layout.is_chosen(options))
    found = _by_hour(_by_identity(messages)).orderBy(*GROUP).collect()
    if not found:
        raise OptionsError("--input has no messages of these topics")
    return [Hour(**row.asDict()) for row in found]


def _by_identity(messages: "DataFrame") -> "DataFrame":
    """Return one row per message, however many duplicates it has; those without an id share a row."""
    from pyspark.sql import functions as f

    size = f.octet_length("body")
    delay_s = (f.unix_micros(layout.INGESTED) - f.col("timestamp_ns") / 1000) / 1e6
    return messages.groupBy(*GROUP, "id", "timestamp_ns").agg(
        f.count(f.lit(1)).alias("copies"),
        f.sum(size).alias("bytes"),
        f.max(size).alias("size_max"),
        f.count_if(f.col("attempts") > 1).alias("redelivered"),
        f.sum("attempts").alias("attempts"),
        f.count("attempts").alias("attempts_count"),
        f.max("attempts").alias("attempts_max"),
        f.min(delay_s).alias("delay_s"),
    )


def _by_hour(identities: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    has_identity = f.col("id").isNotNull() & f.col("timestamp_ns").isNotNull()
    percentiles = f.percentile_approx("delay_s", list(PERCENTILES))
    return (
        identities.groupBy(*GROUP)
        .agg(
            f.sum("copies").alias("messages"),
            f.sum("bytes").alias("bytes"),
            f.max("size_max").cast("long").alias("body_bytes_max"),
            f.sum(f.when(has_identity, f.col("copies") - 1).otherwise(0)).alias("duplicates"),
            f.sum("redelivered").alias("redelivered"),
            f.try_divide(f.sum("attempts"), f.sum("attempts_count")).alias("attempts_mean"),
            f.max("attempts_max").alias("attempts_max"),
            percentiles.alias("delays"),
            f.max("delay_s").alias("delay_max_s"),
        )
        .select(
            *GROUP,
            "messages",
            "bytes",
            "body_bytes_max",
            "duplicates",
            "redelivered",
            "attempts_mean",
            "attempts_max",
            *(
                f.col("delays")[number].alias(f"delay_p{round(share * 100)}_s")
                for number, share in enumerate(PERCENTILES)
            ),
            "delay_max_s",
        )
    )


MARK_FOLDER, MARK = "_stats", "stats.json"


def check_output(spark: "SparkSession", output: str) -> None:
    """OptionsError: it is neither empty nor an earlier output of stats, which is replaced."""
    if Folder(spark, f"{output}/{MARK_FOLDER}").read_json(MARK) is not None:
        return
    if Folder(spark, output).names():
        raise OptionsError(f"{output}: not empty, and not of stats; give an empty --output")
    Folder(spark, f"{output}/{MARK_FOLDER}").write_json(MARK, {"job": "stats"})


def write_figures(spark: "SparkSession", hours: Sequence[Hour], output: str) -> None:
    """Write one Parquet file, replacing the previous one."""
    rows = spark.createDataFrame([astuple(hour) for hour in hours], DDL)
    rows.coalesce(1).write.mode("overwrite").parquet(output)
    # Spark has emptied the folder.
    Folder(spark, f"{output}/{MARK_FOLDER}").write_json(MARK, {"job": "stats"})
