"""Prometheus metrics of the listeners and of what they answer over HTTP, common to all programs."""

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from nsqfast.net.listener import Listener


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
