"""Prometheus metrics of the process, under their conventional names."""

import resource
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from nsqfast.refusals import REFUSED
from nsqfast.stats.memory import resident_bytes


def process_metrics(start_time: float) -> Iterator[Metric]:
    """The current metrics. The library's own collector is not used: it lists thousands of descriptors each time."""
    yield CounterMetricFamily("process_cpu_seconds", "User and system time.", time.process_time())
    yield GaugeMetricFamily(
        "process_resident_memory_bytes", "Memory that is in RAM.", resident_bytes()
    )
    yield GaugeMetricFamily("process_start_time_seconds", "Unix time of the start.", start_time)
    yield GaugeMetricFamily("process_open_fds", "Open descriptors.", _open_file_count())
    refused = CounterMetricFamily(
        "nsq_refused", "What peers were refused, a line in the log each.", labels=["reason"]
    )
    for reason, count in sorted(REFUSED.items()):
        refused.add_metric([reason], count)
    yield refused
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield GaugeMetricFamily("process_max_fds", "How many there may be.", limit)


def _open_file_count() -> int:
    # Linux 6.2 and later report the number without listing them.
    folder = Path("/proc/self/fd")
    return folder.stat().st_size or sum(1 for _ in folder.iterdir())
