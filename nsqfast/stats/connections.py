"""What every program tells Prometheus of its listeners."""

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from nsqfast.net.door import Door


def connection_metrics(program: str, doors: Mapping[str, Door]) -> Iterator[Metric]:
    """Of the doors by listener, as it is now."""
    labels = ["listener"]
    now = GaugeMetricFamily(f"{program}_connections", "Connections that are open.", labels=labels)
    accepted = CounterMetricFamily(
        f"{program}_connections_accepted", "Connections since the start.", labels=labels
    )
    for name, door in doors.items():
        now.add_metric([name.lower()], door.open_count())
        accepted.add_metric([name.lower()], door.accepted_count)
    yield now
    yield accepted
