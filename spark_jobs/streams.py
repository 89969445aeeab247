"""The streaming query of a job: watches it, restarts it after a temporary failure, and stops it in order."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from nsqfast.spark.failures import explain, is_permanent, spark_errors
from nsqfast.spark_jobs.job import Stop
from nsqfast.tools.shared.program import ToolError, log

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

POLL_S = 0.2
FIRST_WAIT_S = 1.0
WAIT_S_MAX = 60.0
HEALTHY_S = 60.0  # a query that ran for so long has recovered from earlier failures


def run_query(
    start: Callable[[], "StreamingQuery"],
    stop: Stop,
    restarts_max: int,
    is_over: Callable[[], bool] = lambda: False,
    watch: "Callable[[StreamingQuery], None]" = lambda _: None,
) -> None:
    """Run until it ends by itself, `stop` is requested, or `is_over`, which is checked after each `watch`.

    ToolError: it failed, and a restart would not help.
    """
    failures, wait_s = 0, FIRST_WAIT_S
    while True:
        begun_s = time.monotonic()
        error = _run(start, stop, is_over, watch)
        if error is None or stop.is_asked:
            return
        if time.monotonic() - begun_s > HEALTHY_S:
            failures, wait_s = 0, FIRST_WAIT_S
        failures += 1
        if is_permanent(error):
            raise ToolError(explain(error))
        if failures > restarts_max:
            raise ToolError(f"{explain(error)} (given up after {restarts_max} restarts)")
        log.warning("%s; starting again in %.0f s", explain(error), wait_s)
        if stop.wait(wait_s):
            return
        wait_s = min(2 * wait_s, WAIT_S_MAX)


def _run(
    start: Callable[[], "StreamingQuery"],
    stop: Stop,
    is_over: Callable[[], bool],
    watch: "Callable[[StreamingQuery], None]",
) -> Exception | None:
    """Return what ended it, unless it ended in order."""
    try:
        query = start()
    except spark_errors() as error:
        return error
    try:
        while query.isActive and not (stop.is_asked or is_over()):
            stop.wait(POLL_S)
            watch(query)
    finally:
        query.stop()
    reason: Exception | None = query.exception()
    return None if stop.is_asked or is_over() else reason
