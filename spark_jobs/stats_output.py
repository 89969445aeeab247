"""Writes the figures of stats: a folder of Parquet, and a page."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.gotext import os_error
from nsqfast.spark_jobs.folders import Folder
from nsqfast.spark_jobs.stats_figures import DDL, Hour
from nsqfast.spark_jobs.stats_page import make_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK_FOLDER, MARK = "_stats", "stats.json"
PAGE_MODE = 0o644


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


def write_page(hours: Sequence[Hour], inputs: Sequence[str], path: str) -> None:
    """Write it atomically. OptionsError: it cannot be written."""
    page = make_page(hours, inputs, datetime.now(UTC))
    target = Path(path)
    try:
        fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(page)
            Path(name).chmod(PAGE_MODE)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OptionsError(f"--html: {path}: {os_error(error)}") from None
