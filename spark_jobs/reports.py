"""Reports on each batch: a line of JSON in a file, series for Prometheus, a progress bar for a terminal."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nsqfast.errors import OptionsError
from nsqfast.program.options import PlainError
from nsqfast.stats.process import process_metrics
from nsqfast.tools.shared.metrics import MetricsServer
from nsqfast.tools.shared.output import Progress, is_watched
from nsqfast.wire.gotext import os_error

if TYPE_CHECKING:
    from io import TextIOWrapper

Figure = int | float | str | None

PREFIX = "nsqfast_spark_"
STOP_TIMEOUT_S = 5.0
# Figures that are summed over the batches, with their descriptions; the others are gauges of the last batch.
COUNTERS = {
    "rows": "Messages or records of the batches.",
    "bytes": "Bytes of their bodies.",
    "bad": "Records that are not what they should be.",
    "redelivered": "Messages that were delivered before.",
    "duplicates": "Records that were there already, and were left out.",
    "published": "Messages that nsqd took.",
    "failed": "Messages that no nsqd took.",
}
GAUGES = {
    "batch": "Number of the last batch.",
    "duration_s": "How long the last batch took, in seconds.",
    "delay_s": "From publishing to the end of the batch, for the oldest message of the last batch, in seconds.",
    "lag_rows": "Messages that waited in the spool behind the batch before.",
    "lag_bytes": "Bytes of their segments.",
    "lag_age_s": "For how long the oldest of them had waited, in seconds.",
}


class Reports:
    """A context that opens the file and the address, and closes them; OptionsError if that fails."""

    def __init__(self, job: str, file: str, address: str) -> None:
        self._job = job
        self._path = file
        self._file: TextIOWrapper | None = None
        self._figures = BatchFigures(job)
        self._server = _ServerThread(address, self._figures) if address else None
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            if self._path:
                self._file = stack.enter_context(_open(self._path))
            if self._server is not None:
                stack.callback(self._server.close)
                self._server.start()
            if is_watched():
                self._bar = stack.enter_context(Progress(f"nsqfast-spark {self._job}", None))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        place: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        """Where /metrics is served; '' = nowhere."""
        return self._server.bound if self._server else ""

    @property
    def totals(self) -> dict[str, float]:
        """The counters, over all batches so far."""
        return dict(self._figures.totals)

    def note(self, **figures: Figure) -> None:
        """A batch is done; OptionsError: the file cannot be written. None = unknown."""
        self._figures.add(figures)
        if self._file is not None:
            line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "job": self._job}
            try:
                self._file.write(json.dumps({**line, **figures}) + "\n")
                self._file.flush()
            except OSError as error:
                raise OptionsError(f"--metrics-file: {self._path}: {os_error(error)}") from None
        if self._bar is not None:
            self._bar.show(0, int(self._figures.totals.get("rows", 0)))


def _open(path: str) -> "TextIOWrapper":
    try:
        return Path(path).open("a", encoding="utf-8")
    except OSError as error:
        raise PlainError(f"--metrics-file: {path}: {os_error(error)}") from None


class BatchFigures(Collector):
    """The figures after the last batch; one thread adds while another reads."""

    def __init__(self, job: str) -> None:
        self._prefix = f"{PREFIX}{job.replace('-', '_')}_"
        self._start_time = time.time()
        self._batches = 0
        self.totals: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def add(self, figures: dict[str, Figure]) -> None:
        """Add those of one batch; strings are for the file alone."""
        self._batches += 1
        for name, value in figures.items():
            if name in COUNTERS and isinstance(value, int | float):
                self.totals[name] = self.totals.get(name, 0) + value
            elif name in GAUGES and isinstance(value, int | float):
                self._last[name] = value

    def collect(self) -> Iterator[Metric]:
        """Yield them and those of the process."""
        yield CounterMetricFamily(f"{self._prefix}batches", "Batches that are done.", self._batches)
        for name, total in list(self.totals.items()):
            yield CounterMetricFamily(self._prefix + name, COUNTERS[name], total)
        for name, value in list(self._last.items()):
            # Prometheus spells units out.
            spelled = name.replace("_s", "_seconds") if name.endswith("_s") else name
            yield GaugeMetricFamily(self._prefix + spelled, GAUGES[name], value)
        yield from process_metrics(self._start_time)


class _ServerThread:
    """Runs the server's event loop in a thread, since a job has none."""

    def __init__(self, address: str, figures: BatchFigures) -> None:
        self._server = MetricsServer(address, figures)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="nsqfast: metrics", daemon=True
        )
        self.bound = ""

    def start(self) -> None:
        self._thread.start()
        self.bound = self._call(self._start())

    def close(self) -> None:
        if self._thread.is_alive():
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_TIMEOUT_S)
        self._loop.close()

    def _call(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(STOP_TIMEOUT_S)

    async def _start(self) -> str:
        return self._server.start()

    async def _close(self) -> None:
        self._server.close()
