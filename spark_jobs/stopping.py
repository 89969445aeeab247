"""SIGTERM and SIGINT: stops a job in order."""

import contextlib
import signal
import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
