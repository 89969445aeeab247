"""Orders from NSQ, revenue by country and ten seconds, and back to NSQ. The cells are those of a notebook.

    python examples/spark/revenue.py NSQD_TCP_ADDRESS [FOLDER]

It reads the topic `orders`, whose messages are JSON as {"order": 1, "country": "DE", "cents": 1250}, and publishes a
message to the topic `revenue` whenever a sum changes. FOLDER (default: revenue-state) keeps what must survive a
restart; the program goes on where it ended. Ctrl-C ends it.
"""

# %% What it needs: pip install 'nsqfast[spark]', and Java 17 (apt install openjdk-17-jre-headless)
import contextlib
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import nsqfast.spark

if len(sys.argv) not in {2, 3}:
    sys.exit(__doc__)
# Spark's workers are to be this Python, with nsqfast in it, and not whatever python3 is on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
address = sys.argv[1]
folder = Path(sys.argv[2] if len(sys.argv) == 3 else "revenue-state").absolute()

spark = (
    SparkSession.builder.master("local[2]")
    .appName("revenue")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
nsqfast.spark.register(spark)

# %% From NSQ: messages are on disk in `spool` before nsqd is told that they are finished
messages = (
    spark.readStream.format("nsq")
    .option("subscribe", "orders")
    .option("channel", "revenue")
    .option("nsqdTcpAddresses", address)
    .option("spoolDir", str(folder / "spool"))
    .load()
)

# %% JSON: what is no order has no country, and is left out
order = sql.from_json(messages.body.cast("string"), "order LONG, country STRING, cents LONG")
orders = messages.select("id", "timestamp", order.alias("order")).where("order.country IS NOT NULL")

# %% Windows of ten seconds by the time of publishing; a message that is later than a minute no longer counts
revenue = (
    orders.withWatermark("timestamp", "1 minute")
    .groupBy(sql.window("timestamp", "10 seconds"), "order.country")
    .agg(sql.count("*").alias("orders"), sql.sum("order.cents").alias("cents"))
)

# %% Back to NSQ: a message for each sum that changed. (A stream's own sink can only append, which would wait until
# nothing of a window can come any more.)
window = sql.struct(sql.col("window.start").alias("begin"), "country", "orders", "cents")


def publish(changed: DataFrame, _batch: int) -> None:
    """One batch."""
    sums = changed.select(sql.to_json(window).alias("body"))
    sums.write.format("nsq").mode("append").option("topic", "revenue").option(
        "nsqdTcpAddresses", address
    ).save()


query = (
    revenue.writeStream.foreachBatch(publish)
    .option("checkpointLocation", str(folder / "checkpoint"))
    .outputMode("update")
    .trigger(processingTime="1 second")
    .start()
)

# %% Until Ctrl-C
print("running: publish to the topic orders, and look at the topic revenue", flush=True)
with contextlib.suppress(KeyboardInterrupt):
    query.awaitTermination()
query.stop()
spark.stop()
