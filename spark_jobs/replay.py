"""nsqfast-spark replay: publish again what ingest, load-archives or nsq_to_file wrote.

    nsqfast-spark replay --input=/data/messages --nsqd-tcp-address=127.0.0.1:4150 --state=/data/replay

nsqfast-replay does the same without Spark, from one machine's files; flags of both have the same names.
"""

import sys
from typing import TYPE_CHECKING

from nsqfast.spark_jobs.job import Job, run_job
from nsqfast.spark_jobs.options import parser
from nsqfast.spark_jobs.replay_options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "replay"


def main(argv: list[str] | None = None, spark: "SparkSession | None" = None) -> int:
    """Run the job; return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return run_job(NAME, parser(Options, NAME, words), live, spark)


def live(job: Job[Options]) -> int:
    """Return the exit status."""
    # Late, so that --help and a wrong flag answer at once.
    import nsqfast.spark
    from nsqfast.spark_jobs.replaying import Replay

    nsqfast.spark.register(job.spark)
    return Replay(job).run()


if __name__ == "__main__":
    sys.exit(main())
