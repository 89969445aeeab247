"""The job stats: counts what is in folders of messages, by topic and hour, as a table, as Parquet and as a chart.

nsqfast-spark stats --input=/lake/messages --chart=stats.png
"""

import sys
import time
from typing import TYPE_CHECKING

from nsqfast.spark_jobs.job import EXIT_OK, Job, run_job
from nsqfast.spark_jobs.options import parser
from nsqfast.spark_jobs.stats_figures import Options
from nsqfast.tools.shared.program import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(argv: list[str] | None = None, spark: "SparkSession | None" = None) -> int:
    """Run the job; return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return run_job("stats", parser(Options, "stats", words), live, spark)


def live(job: Job[Options]) -> int:
    """Count the messages, and show the figures."""
    # Late, so that --help and a wrong flag answer at once.
    from nsqfast.spark_jobs.layout import check_apart
    from nsqfast.spark_jobs.stats_figures import check_output, count_messages, write_figures
    from nsqfast.spark_jobs.stats_report import print_table, write_chart, write_page

    options, spark = job.options, job.spark
    begun_s = time.monotonic()
    if options.output:
        check_apart(spark, options.input, options.output)
        check_output(spark, options.output)
    hours = count_messages(spark, options)
    if options.output:
        write_figures(spark, hours, options.output)
    if options.chart:
        write_chart(hours, options.chart)
    if options.html:
        log.warning("--html goes with 0.4: say --chart")
        write_page(hours, options.html)
    print_table(hours)
    job.reports.note(
        batch=1,
        rows=sum(hour.messages for hour in hours),
        bytes=sum(hour.bytes for hour in hours),
        duplicates=sum(hour.duplicates for hour in hours),
        redelivered=sum(hour.redelivered for hour in hours),
        duration_s=round(time.monotonic() - begun_s, 3),
    )
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
