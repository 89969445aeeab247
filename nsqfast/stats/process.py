"""Prometheus metrics common to all programs: of the process, under their conventional names; of its listeners, and of
what they answer over HTTP.
"""

import resource
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import GCCollector, PlatformCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import CollectorRegistry

from nsqfast.net.listener import Listener
from nsqfast.stats.memory import resident_bytes
from nsqfast.wire.refusals import REFUSED

BUILD_TEXT = (
    "This is always 1; the labels are the version of NSQ that it is compatible with, and its own."
)
# The library's words for these are no sentences.
_SENTENCES = {
    "python_info": "This is always 1; the labels are the version of the interpreter.",
    "python_gc_objects_collected": "This counts the objects that the garbage collector freed, by generation.",
    "python_gc_objects_uncollectable": "This counts the objects that could not be freed, by generation.",
    "python_gc_collections": "This counts the runs of the garbage collector, by generation.",
}
_INTERPRETER = CollectorRegistry()
PlatformCollector(registry=_INTERPRETER)
GCCollector(registry=_INTERPRETER)


def process_metrics(start_time: float) -> Iterator[Metric]:
    """The current metrics. The library's own collector is not used: it lists thousands of descriptors each time."""
    yield CounterMetricFamily(
        "process_cpu_seconds",
        "This counts the seconds of processor time that the process has used, user and system.",
        time.process_time(),
    )
    yield GaugeMetricFamily(
        "process_resident_memory_bytes",
        "This is the memory of the process that is in RAM, in bytes.",
        resident_bytes(),
    )
    yield GaugeMetricFamily(
        "process_start_time_seconds",
        "This is the Unix time in seconds at which the process started.",
        start_time,
    )
    yield GaugeMetricFamily(
        "process_open_fds", "This is the number of open file descriptors.", _open_file_count()
    )
    refused = CounterMetricFamily(
        "nsq_refused",
        "This counts what peers were refused, by reason; each has a line in the log.",
        labels=["reason"],
    )
    for reason, count in sorted(REFUSED.items()):
        refused.add_metric([reason], count)
    yield refused
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield GaugeMetricFamily(
        "process_max_fds", "This is the number of file descriptors that may be open.", limit
    )


def python_metrics() -> Iterator[Metric]:
    """The current metrics of the interpreter."""
    for metric in _INTERPRETER.collect():
        metric.documentation = _SENTENCES[metric.name]
        yield metric


def _open_file_count() -> int:
    # Linux 6.2 and later report the number without listing them.
    folder = Path("/proc/self/fd")
    return folder.stat().st_size or sum(1 for _ in folder.iterdir())


def connection_metrics(program: str, listeners: Mapping[str, Listener]) -> Iterator[Metric]:
    """The current metrics of the listeners, by name."""
    labels = ["listener"]
    now = GaugeMetricFamily(
        f"{program}_connections",
        "This is the number of connections that are open, by listener.",
        labels=labels,
    )
    accepted = CounterMetricFamily(
        f"{program}_connections_accepted",
        "This counts the connections since the start, by listener.",
        labels=labels,
    )
    for name, listener in listeners.items():
        now.add_metric([name.lower()], listener.open_count())
        accepted.add_metric([name.lower()], listener.accepted_count)
    yield now
    yield accepted


def request_metrics(program: str, answered: Mapping[tuple[str, int], int]) -> Iterator[Metric]:
    """The requests over HTTP that were answered, by route and status."""
    requests = CounterMetricFamily(
        f"{program}_http_requests",
        "This counts the HTTP requests that were answered, by route and status.",
        labels=["path", "status"],
    )
    for (path, status), count in sorted(answered.items()):
        requests.add_metric([path, str(status)], count)
    yield requests
