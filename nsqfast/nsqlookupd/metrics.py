"""The figures behind /metrics, read on request. No label holds a peer's text, not even a topic's name."""

import time
from collections.abc import Iterable, Iterator
from itertools import chain

from prometheus_client import GCCollector, PlatformCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from nsqfast.net.http_message import Response
from nsqfast.nsqlookupd.lookupd import Lookupd
from nsqfast.stats.connections import connection_metrics
from nsqfast.stats.process import process_metrics
from nsqfast.stats.prometheus import Format
from nsqfast.version import NSQ_VERSION, __version__


class Metrics:
    """The figures of one nsqlookupd."""

    def __init__(self, lookupd: Lookupd) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(LookupdCollector(lookupd))
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    async def answer(self, accept: str) -> Response:
        """All figures, in the format that the Accept header asks for."""
        wanted = Format(accept)
        body = wanted.metrics(self._registry.collect()) + wanted.end
        return Response(200, body, wanted.content_type)


class LookupdCollector(Collector):
    """All figures except Python's own."""

    def __init__(self, lookupd: Lookupd) -> None:
        self._lookupd = lookupd

    def collect(self) -> Iterable[Metric]:
        """Collect the current figures."""
        lookupd = self._lookupd
        connections = connection_metrics("nsqlookupd", lookupd.listeners)
        parts = (
            self._database(),
            connections,
            self._traffic(),
            process_metrics(lookupd.start_time),
        )
        return list(chain(*parts))

    def _database(self) -> Iterator[Metric]:
        registry = self._lookupd.registry
        now_ns = time.monotonic_ns()
        versions = {"version": NSQ_VERSION, "nsqfast_version": __version__}
        yield InfoMetricFamily("nsqlookupd_build", "NSQ's version and our own.", versions)
        producers = GaugeMetricFamily(
            "nsqlookupd_producers", "Connections that said who they are.", labels=["state"]
        )
        active = len(registry.nodes(now_ns))
        producers.add_metric(["active"], active)
        producers.add_metric(["inactive"], registry.client_count - active)
        yield producers
        for name, text, value in (
            ("topics", "Topics, with producers or without.", registry.topic_count),
            ("channels", "Channels, with producers or without.", registry.channel_count),
            (
                "registrations",
                "Topics and channels, once for each producer.",
                registry.registration_count,
            ),
            ("tombstones", "Tombstones in force.", registry.tombstone_count(now_ns)),
        ):
            yield GaugeMetricFamily(f"nsqlookupd_{name}", text, value)

    def _traffic(self) -> Iterator[Metric]:
        desk = self._lookupd.desk
        commands = CounterMetricFamily(
            "nsqlookupd_commands", "Commands over TCP.", labels=["command"]
        )
        for command, count in sorted(desk.commands.items()):
            commands.add_metric([command], count)
        errors = CounterMetricFamily(
            "nsqlookupd_errors", "Errors that ended a TCP connection.", labels=["code"]
        )
        for code, count in sorted(desk.errors.items()):
            errors.add_metric([code], count)
        requests = CounterMetricFamily(
            "nsqlookupd_http_requests", "Requests over HTTP.", labels=["path", "status"]
        )
        for (path, status), count in sorted(self._lookupd.requests.items()):
            requests.add_metric([path, str(status)], count)
        yield from (commands, errors, requests)
