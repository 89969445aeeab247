"""nsqfast-spark ingest: topics of NSQ to Parquet, each message once.

    nsqfast-spark ingest --topic=orders --channel=archive --nsqd-tcp-address=127.0.0.1:4150 \
        --spool=/data/spool --output=/data/messages --checkpoint=/data/checkpoint

It writes to <output>/topic=T/date=D/hour=H/batch=<query>-<number>. A batch that is written again, because the job was
killed between its files and Spark's commit, replaces its own folders: nothing is lost or duplicated.
"""

import sys
from typing import TYPE_CHECKING

from nsqfast.spark_jobs.ingest_options import Options
from nsqfast.spark_jobs.job import Job, run_job
from nsqfast.spark_jobs.options import parser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "ingest"


def main(argv: list[str] | None = None, spark: "SparkSession | None" = None) -> int:
    """Run the job; return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return run_job(NAME, parser(Options, NAME, words), live, spark)


def live(job: Job[Options]) -> int:
    """Return the exit status."""
    # Late, so that --help and a wrong flag answer at once.
    from nsqfast.spark_jobs.ingest_source import make_source
    from nsqfast.spark_jobs.ingestion import Ingestion

    return Ingestion(job, make_source(job)).run()


if __name__ == "__main__":
    sys.exit(main())
