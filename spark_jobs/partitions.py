"""The folders of a batch, in all topics and hours of an output, through Spark's own file systems."""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIGNS = re.compile(r"[\[\]{}*?\\]")
PATTERN = "topic=*/date=*/hour=*/batch="


def has_batches(spark: "SparkSession", output: str, batch: str) -> bool:
    """Whether there are any whose name matches this pattern."""
    return bool(_find(spark, output, batch))


def delete_batches(spark: "SparkSession", output: str, batch: str) -> None:
    """Delete what an earlier, unfinished attempt wrote."""
    files = _files(spark, output)
    for path in _find(spark, output, batch):
        files.delete(path, True)


def no_pattern(path: str) -> str:
    """Escape a path for Spark, which reads paths as patterns."""
    return _SIGNS.sub(r"\\\g<0>", path)


def _find(spark: "SparkSession", output: str, batch: str) -> list[Any]:
    pattern = _path(spark, no_pattern(output), PATTERN + batch)
    found = _files(spark, output).globStatus(pattern)
    return [status.getPath() for status in found] if found else []


def _files(spark: "SparkSession", output: str) -> Any:
    return _path(spark, output).getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001


def _path(spark: "SparkSession", *parts: str) -> Any:
    # PySpark has no other way to Hadoop's file systems.
    return spark._jvm.org.apache.hadoop.fs.Path(*parts)  # noqa: SLF001
