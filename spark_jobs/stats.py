"""The job stats: what is in folders of messages, by topic and hour, as a table, as Parquet and as a page.

nsqfast-spark stats --input=/lake/messages --html=stats.html
"""

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsqfast.options import STRING, STRINGS, PlainError, option
from nsqfast.spark_jobs.job import EXIT_OK, Job, run_job
from nsqfast.spark_jobs.options import JobOptions, TopicOptions, parser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Options(TopicOptions, JobOptions):
    """Of the job."""

    # fmt: off
    input: list[str] = option(
        STRINGS, [], "folder that ingest, load-archives or compact wrote (may be given multiple times)")
    output: str = option(STRING, "", "folder for the figures as Parquet, a row for each topic and hour")
    html: str = option(STRING, "", "file for the figures as a page that needs no network")
    # fmt: on

    def check(self) -> None:
        """PlainError: something cannot be honoured, or is missing."""
        JobOptions.check(self)
        self.check_topics()
        if not self.input:
            raise PlainError("--input required")


def main(argv: list[str] | None = None, spark: "SparkSession | None" = None) -> int:
    """One run; the result is the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return run_job("stats", parser(Options, "stats", words), live, spark)


def live(job: Job[Options]) -> int:
    """Count, and show."""
    # Late, so that --help and a wrong flag answer at once.
    from nsqfast.spark_jobs.messages import check_apart
    from nsqfast.spark_jobs.stats_figures import count_messages
    from nsqfast.spark_jobs.stats_output import check_output, write_figures, write_page
    from nsqfast.spark_jobs.stats_table import print_table

    options, spark = job.options, job.spark
    begun_s = time.monotonic()
    if options.output:
        check_apart(spark, options.input, options.output)
        check_output(spark, options.output)
    hours = count_messages(spark, options)
    if options.output:
        write_figures(spark, hours, options.output)
    if options.html:
        write_page(hours, options.input, options.html)
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
