"""The figures behind /metrics, read on request. No label holds a peer's text, not even a topic's name."""

import time
from collections.abc import Iterable, Iterator
from itertools import chain

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from nsqfast.net.http_message import ANSWERED, Response
from nsqfast.nsqlookupd.lookupd import Lookupd
from nsqfast.stats.process import (
    BUILD_TEXT,
    connection_metrics,
    process_metrics,
    python_metrics,
    request_metrics,
)
from nsqfast.stats.prometheus import Format
from nsqfast.version import NSQ_VERSION, __version__


class Metrics:
    """The figures of one nsqlookupd."""

    def __init__(self, lookupd: Lookupd) -> None:
        self._figures = LookupdCollector(lookupd)

    async def answer(self, accept: str) -> Response:
        """All figures, in the format that the Accept header asks for."""
        wanted = Format(accept)
        body = wanted.metrics(self._figures.collect()) + wanted.end
        return Response(200, body, wanted.content_type)


class LookupdCollector(Collector):
    """All figures."""

    def __init__(self, lookupd: Lookupd) -> None:
        self._lookupd = lookupd

    def collect(self) -> Iterable[Metric]:
        """Collect the current figures."""
        lookupd = self._lookupd
        parts = (
            self._database(),
            connection_metrics("nsqlookupd", lookupd.listeners),
            self._traffic(),
            request_metrics("nsqlookupd", ANSWERED),
            process_metrics(lookupd.start_time),
            python_metrics(),
        )
        return list(chain(*parts))

    def _database(self) -> Iterator[Metric]:
        registry = self._lookupd.registry
        now_ns = time.monotonic_ns()
        versions = {"version": NSQ_VERSION, "nsqfast_version": __version__}
        yield InfoMetricFamily("nsqlookupd_build", BUILD_TEXT, versions)
        producers = GaugeMetricFamily(
            "nsqlookupd_producers",
            "This is the number of connections that said who they are, by state.",
            labels=["state"],
        )
        active = len(registry.nodes(now_ns))
        producers.add_metric(["active"], active)
        producers.add_metric(["inactive"], registry.client_count - active)
        yield producers
        for name, text, value in (
            (
                "topics",
                "This is the number of topics, with producers or without.",
                registry.topic_count,
            ),
            (
                "channels",
                "This is the number of channels, with producers or without.",
                registry.channel_count,
            ),
            (
                "registrations",
                "This is the number of topics and channels, once for each producer.",
                registry.registration_count,
            ),
            (
                "tombstones",
                "This is the number of tombstones in force.",
                registry.tombstone_count(now_ns),
            ),
        ):
            yield GaugeMetricFamily(f"nsqlookupd_{name}", text, value)

    def _traffic(self) -> Iterator[Metric]:
        desk = self._lookupd.desk
        commands = CounterMetricFamily(
            "nsqlookupd_commands",
            "This counts the commands over TCP, by command.",
            labels=["command"],
        )
        for command, count in sorted(desk.commands.items()):
            commands.add_metric([command], count)
        errors = CounterMetricFamily(
            "nsqlookupd_errors",
            "This counts the errors that ended a TCP connection, by code.",
            labels=["code"],
        )
        for code, count in sorted(desk.errors.items()):
            errors.add_metric([code], count)
        yield from (commands, errors)
