"""Writes the figures of stats into a folder of Parquet."""

from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.spark_jobs.folders import Folder
from nsqfast.spark_jobs.stats_figures import DDL, Hour

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
