"""NSQ in Apache Spark, through PySpark: format("nsq") for spark.read, spark.readStream, df.write and df.writeStream.

    import nsqfast.spark

    nsqfast.spark.register(spark)
    frame.write.format("nsq").mode("append").option("topic", "orders").option("nsqdTcpAddresses", "a:4150").save()

Where nsqfast is installed from a wheel, Spark finds the format by itself, and `register` is not needed. Neither this
module nor `nsqfast.spark.runtime` imports pyspark or pyarrow.
"""

from typing import TYPE_CHECKING

from nsqfast.errors import PackageMissingError

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PackageMissingError", "read", "register", "release", "stream"]


def stream(
    spark: "SparkSession",
    spool_dir: "str | os.PathLike[str]",
    *,
    deaths: bool = False,
    **options: object,
) -> "DataFrame":
    """Return the stream of the messages of a spool of Parquet segments, which Spark itself reads.

    In place of a spool it may be the address of a store (`s3a://BUCKET/FOLDER`). With `deaths` there is the column
    `death`, for a receiver that was started with --deaths. `options` are those of Spark's file source, as
    maxFilesPerTrigger. SpoolError: there is no such spool, or it has something that Spark cannot read.
    """
    from nsqfast.spark.native import read_by

    return read_by(spark.readStream, spool_dir, options, deaths=deaths)


def read(
    spark: "SparkSession",
    spool_dir: "str | os.PathLike[str]",
    *,
    deaths: bool = False,
    **options: object,
) -> "DataFrame":
    """Return the messages that wait in such a spool; they are not released by that. Else as `stream`."""
    from nsqfast.spark.native import read_by

    return read_by(spark.read, spool_dir, options, deaths=deaths)


def release(spool_dir: "str | os.PathLike[str]") -> int:
    """Release what the last spark.read of that spool was given, so that the next one is given what came after.

    Return the number of messages. SpoolError: a query reads the spool, or it is not one.
    """
    from nsqfast.spark.source.batch import release as release_handout

    return release_handout(spool_dir)


def register(spark: "SparkSession") -> None:
    """Make format("nsq") known to this session; PackageMissingError without pyspark."""
    from nsqfast.spark.datasource import NsqDataSource
    from nsqfast.spark.runtime import warn_of_other_python

    warn_of_other_python(spark)
    spark.dataSource.register(NsqDataSource)
