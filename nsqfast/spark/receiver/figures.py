"""GET /metrics of --metrics-address."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nsqfast.spark.receiver.service import Service
from nsqfast.stats.process import process_metrics

PREFIX = "nsqfast_nsq_spool_"
COUNTERS = (
    ("segments", "segments", "Segments sealed."),
    ("stored_bytes", "stored_size", "Bytes of segments."),
    ("seal_seconds", "seal_s", "Time from the begin of sealing until a segment was on disk."),
    ("dropped", "dropped", "Messages that came again and were dropped."),
    ("seal_failures", "failures", "Attempts to seal that failed."),
    ("requeued", "requeued", "Messages that could not be sealed and were requeued."),
)


class ServiceFigures(Collector):
    """The figures at the time of the request."""

    def __init__(self, service: Service, start_time: float) -> None:
        self._service = service
        self._start_time = start_time

    def collect(self) -> Iterator[Metric]:
        """Yield what came by topic, what was done with all of it, and the spool."""
        service = self._service
        messages = CounterMetricFamily(f"{PREFIX}messages", "Messages that came.", labels=["topic"])
        size = CounterMetricFamily(f"{PREFIX}bytes", "Bytes of their bodies.", labels=["topic"])
        for name, topic in service.topics.items():
            messages.add_metric([name], topic.received)
            size.add_metric([name], topic.size)
        yield messages
        yield size
        for name, field, text in COUNTERS:
            value = getattr(service.sealer.figures, field)
            yield CounterMetricFamily(PREFIX + name, text, value)
        for name, text, value in self._gauges():
            yield GaugeMetricFamily(PREFIX + name, text, value)
        yield from process_metrics(self._start_time)

    def _gauges(self) -> list[tuple[str, str, float]]:
        room, sealer = self._service.room, self._service.sealer
        return [
            ("paused", "1 while nothing more is taken.", float(room.is_full)),
            ("live_segments", "Segments that Spark did not release.", room.segments),
            ("live_bytes", "Their bytes.", room.size),
            ("disk_free_bytes", "What the disk has left.", room.free_size),
            ("in_flight", "Messages that are not sealed.", sealer.waiting_count),
            (
                "oldest_unfinished_seconds",
                "Age of the oldest message that is not finished; 0 = there is none.",
                sealer.oldest_s(),
            ),
        ]
