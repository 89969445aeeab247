"""How a job runs: its settings, its session, its exit status.

0   done, or told to stop
1   the operator has to change something, a peer refused, or Spark failed; one line on stderr says what
2   the command line cannot be read; a line says where the help is
3   done, with more bad records than --max-bad
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from nsqfast.errors import NsqfastError
from nsqfast.program.options import FlagError
from nsqfast.spark_jobs.failures import explain, spark_errors, without_traces
from nsqfast.spark_jobs.options import JobOptions
from nsqfast.spark_jobs.reports import Reports
from nsqfast.spark_jobs.session import open_session
from nsqfast.spark_jobs.stopping import Stop
from nsqfast.tools.shared.program import fill_descriptors, log, set_up_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T", bound=JobOptions)

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_BAD = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """The resources of a job."""

    spark: "SparkSession"
    options: T
    stop: Stop
    reports: Reports


def run_job(
    name: str,
    parse: Callable[[], T],
    live: Callable[[Job[T]], int],
    lent: "SparkSession | None" = None,
) -> int:
    """Run a job from the command line to the exit status, which `live` returns. A `lent` session stays open."""
    fill_descriptors()
    try:
        options = parse()
    except FlagError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    except NsqfastError as error:
        set_up_log()
        log.error("%s", error)
        return EXIT_FAILED
    set_up_log()
    return _run(name, options, live, lent)


def _live(live: Callable[[Job[T]], int], job: Job[T]) -> int:
    try:
        if not job.stop.is_asked:
            return live(job)
    except spark_errors() as error:
        if not job.stop.is_asked:
            log.error("%s", explain(error))
            return EXIT_FAILED
    # A stream stops in order, and reports that itself. Any other job is only partly done.
    log.error("told to stop before it was done")
    return EXIT_FAILED


def _run(name: str, options: T, live: Callable[[Job[T]], int], lent: "SparkSession | None") -> int:
    stop = Stop()
    try:
        with (
            stop.watch_signals(),
            Reports(name, options.metrics_file, options.metrics_address) as reports,
            open_session(options, name, lent) as spark,
            without_traces(),
            stop.watch_signals(),
            stop.cancels_jobs(spark),
        ):
            return _live(live, Job(spark, options, stop, reports))
    except NsqfastError as error:
        log.error("%s", error)
        return EXIT_FAILED
