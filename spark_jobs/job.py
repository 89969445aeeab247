"""How a job runs: its settings, its session, its exit status.

0   done, or told to stop
1   the operator has to change something, a peer refused, or Spark failed; one line on stderr says what
2   the command line cannot be read; a line says where the help is
3   done, with more bad records than --max-bad
"""

import contextlib
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from nsqfast.errors import NsqfastError
from nsqfast.program.options import FlagError
from nsqfast.spark.failures import explain, spark_errors, without_traces
from nsqfast.spark_jobs.options import JobOptions
from nsqfast.spark_jobs.reports import Reports
from nsqfast.spark_jobs.session import open_session
from nsqfast.tools.shared.program import fill_descriptors, log, set_up_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """`is_asked` is true from the first signal on; `wait` then returns early."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def is_asked(self) -> bool:
        """Whether the job should end."""
        return self._event.is_set()

    def ask(self) -> None:
        """Ask the job to end."""
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        """Return `is_asked`, after this time at most."""
        return self._event.wait(timeout_s)

    @contextlib.contextmanager
    def watch_signals(self) -> Iterator[None]:
        """Restore Python's own handlers afterwards. Outside the main thread there is nothing to watch.

        Call it before creating the session and again afterwards: that sets a handler of PySpark's for SIGINT.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in _STOPPING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def cancels_jobs(self, spark: "SparkSession") -> Iterator[None]:
        """Cancel the Spark jobs of this thread when a stop is requested, since the thread itself waits for them.

        They end with an error. Those of a stream run in threads of its own and are not affected.
        """
        context = spark.sparkContext
        tag = f"nsqfast-{uuid.uuid4().hex}"
        is_over = threading.Event()

        def cancel() -> None:
            self._event.wait()
            if not is_over.is_set():
                context.cancelJobsWithTag(tag)

        thread = threading.Thread(target=cancel, name="nsqfast: stop", daemon=True)
        thread.start()
        context.addJobTag(tag)
        try:
            yield
        finally:
            context.removeJobTag(tag)
            was_asked = self._event.is_set()
            is_over.set()
            self._event.set()
            thread.join()
            if not was_asked:
                self._event.clear()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._event.set()


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
