"""The tables of the pipeline in spark-pipeline.yml: a row for each message, and the revenue by country."""

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import nsqfast.spark

spark = SparkSession.active()


@pipelines.table
def orders() -> DataFrame:
    """Each message once: Spark notes which segments it took."""
    messages = nsqfast.spark.stream(spark, spark.conf.get("nsqfast.spool"))
    order = sql.from_json(sql.col("body").cast("string"), "country STRING, cents LONG")
    return messages.select("id", "timestamp", order.alias("order")).select(
        "id", "timestamp", "order.*"
    )


@pipelines.materialized_view
def revenue() -> DataFrame:
    """Computed anew in each run."""
    return (
        spark.read.table("orders")
        .groupBy("country")
        .agg(sql.count("*").alias("orders"), sql.sum("cents").alias("cents"))
    )
