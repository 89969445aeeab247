"""GET /metrics of --metrics-address."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nsqfast.stats.process import process_metrics
from nsqfast.tools.nsq_to_file.service import Service

PREFIX = "nsqfast_nsq_to_file_"
COUNTERS = (
    ("messages", "messages", "Messages written."),
    ("bytes", "size", "Bytes written, before compression."),
    ("stored_bytes", "stored_size", "Bytes written to files."),
    ("files", "files", "Files opened."),
    ("syncs", "syncs", "Syncs of files to disk."),
    ("sync_seconds", "sync_s", "Time in which files were synced."),
)


class ServiceFigures(Collector):
    """The current figures."""

    def __init__(self, service: Service, start_time: float) -> None:
        self._service = service
        self._start_time = start_time

    def collect(self) -> Iterator[Metric]:
        """Collect one series for each topic, and those of the process."""
        for name, field, text in COUNTERS:
            counter = CounterMetricFamily(PREFIX + name, text, labels=["topic"])
            for topic, writer in self._service.writers.items():
                counter.add_metric([topic], getattr(writer.figures, field))
            yield counter
        oldest = GaugeMetricFamily(
            f"{PREFIX}oldest_unfinished_seconds",
            "Age of the oldest message that was written and not finished; 0 = there is none.",
            labels=["topic"],
        )
        in_flight = GaugeMetricFamily(
            f"{PREFIX}in_flight", "Messages that wait for a sync.", labels=["topic"]
        )
        for topic, writer in self._service.writers.items():
            oldest.add_metric([topic], writer.oldest_s())
            in_flight.add_metric([topic], writer.unsynced_count)
        yield oldest
        yield in_flight
        yield CounterMetricFamily(
            f"{PREFIX}given_up", "Messages after max_attempts.", self._service.given_up.count
        )
        yield from process_metrics(self._start_time)
