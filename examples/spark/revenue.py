"""Orders from NSQ, revenue by country and ten seconds, and back to NSQ. The cells are those of a notebook.

python examples/spark/revenue.py [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT] [--state FOLDER]

Messages of TOPIC (orders) are JSON as {"order": 1, "country": "DE", "cents": 1250}. Whenever a sum changes, it is
published to the topic revenue. FOLDER (revenue-state) keeps what must survive a restart; the program goes on where it
ended. Ctrl-C ends it.
"""

# %% What it needs: pip install 'nsqfast[spark]', and Java 17 (apt install openjdk-17-jre-headless)
import argparse
import contextlib
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import nsqfast.spark

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("topic", nargs="?", default="orders")
parser.add_argument("channel", nargs="?", default="revenue")
parser.add_argument("--nsqd", action="append", default=[], metavar="HOST:PORT")
parser.add_argument("--nsqlookupd", action="append", default=[], metavar="HOST:PORT")
parser.add_argument("--state", type=Path, default=Path("revenue-state"), metavar="FOLDER")
given = parser.parse_args()
nsqd = ",".join(given.nsqd or ["127.0.0.1:4150"])  # publishes; and delivers, without nsqlookupd
source = {"nsqdTcpAddresses": nsqd}
if given.nsqlookupd:
    source = {"lookupdHttpAddresses": ",".join(given.nsqlookupd)}
folder = given.state.absolute()
# Spark's workers are to be this Python, with nsqfast in it, and not whatever python3 is on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

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
    .option("subscribe", given.topic)
    .option("channel", given.channel)
    .options(**source)
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
        "nsqdTcpAddresses", nsqd
    ).save()


query = (
    revenue.writeStream.foreachBatch(publish)
    .option("checkpointLocation", str(folder / "checkpoint"))
    .outputMode("update")
    .trigger(processingTime="1 second")
    .start()
)

# %% Until Ctrl-C
print(f"running: publish to the topic {given.topic}, and look at the topic revenue", flush=True)
with contextlib.suppress(KeyboardInterrupt):
    query.awaitTermination()
query.stop()
spark.stop()
