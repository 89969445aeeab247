"""Prometheus metrics of the listeners, common to all programs."""

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from nsqfast.net.listener import Listener


def connection_metrics(program: str, listeners: Mapping[str, Listener]) -> Iterator[Metric]:
    """The current metrics of the listeners, by name."""
    labels = ["listener"]
    now = GaugeMetricFamily(f"{program}_connections", "Connections that are open.", labels=labels)
    accepted = CounterMetricFamily(
        f"{program}_connections_accepted", "Connections since the start.", labels=labels
    )
    for name, listener in listeners.items():
        now.add_metric([name.lower()], listener.open_count())
        accepted.add_metric([name.lower()], listener.accepted_count)
    yield now
    yield accepted
