"""Parquet segments into a table of Delta Lake, as docs/SPARK.md has it."""

import json
import subprocess
import sys

import pyspark
import pytest

from nsqfast.spark.spool.segments import PARQUET
from support.segments import seal
from support.server import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PACKAGES = {"4.0": "io.delta:delta-spark_2.13:4.0.1", "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0"}
PACKAGE = PACKAGES.get(pyspark.__version__.rpartition(".")[0])
# Spark fetches what it lacks from Maven, once.
RUN = """
import json, sys
from pyspark.sql import SparkSession
import nsqfast.spark
folder, package, packages = sys.argv[1:]
settings = {
    "spark.jars.packages": package,
    "spark.jars.ivy": packages,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
messages = nsqfast.spark.stream(spark, folder + "/spool", maxFilesPerTrigger=1)
writer = messages.writeStream.format("delta").option("checkpointLocation", folder + "/checkpoint")
writer.trigger(availableNow=True).start(folder + "/table").awaitTermination()
rows = spark.read.format("delta").load(folder + "/table").select("body").collect()
print(json.dumps([int(row.body) for row in rows]))
"""


@pytest.mark.skipif(PACKAGE is None, reason="no release of Delta Lake is chosen for this PySpark")
def test_a_batch_that_spark_repeats_is_in_the_table_once(tmp_path):
    def run():
        words = [sys.executable, "-c", RUN, str(tmp_path), PACKAGE, str(ROOT / "build" / "ivy")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if "UNRESOLVED DEPENDENCIES" in done.stderr:
            pytest.skip(f"Maven does not give {PACKAGE}")
        assert done.returncode == 0, done.stderr
        return sorted(json.loads(done.stdout.splitlines()[-1]))

    seal(tmp_path / "spool", [10] * 3, segment_format=PARQUET)
    assert run() == list(range(30))
    # As if the driver had been killed behind the write, and in front of this note.
    commits = tmp_path / "checkpoint" / "commits"
    for name in ("2", ".2.crc"):
        (commits / name).unlink()
    seal(tmp_path / "spool", [10] * 2, first=30, segment_format=PARQUET)
    assert run() == list(range(50))
