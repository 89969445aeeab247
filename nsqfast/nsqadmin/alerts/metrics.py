"""The figures behind /metrics, read on request."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import GCCollector, PlatformCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.live.model import NodeState
from nsqfast.stats.process import process_metrics
from nsqfast.stats.prometheus import Format
from nsqfast.version import NSQ_VERSION, __version__

OTHER = "other"
PROBLEM_LABELS = ("rule", "severity", "topic", "channel", "node")


class Metrics:
    """The figures of one nsqadmin."""

    def __init__(self, context: Context) -> None:
        self._base = context.urls.decoded_base
        self._requests: Counter[tuple[str, int]] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(Admin(context, self._requests))
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    async def answer(self, request: web.Request) -> web.Response:
        """All figures, in the format that the Accept header asks for."""
        wanted = Format(request.headers.get("Accept", ""))
        metrics = list(self._registry.collect())
        # A thousand problems take the library some milliseconds; nobody else uses these objects.
        body = await asyncio.to_thread(wanted.metrics, metrics)
        return web.Response(body=body + wanted.end, headers={"Content-Type": wanted.content_type})

    @web.middleware
    async def count_requests(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count by route, never by client input; the outermost middleware, so that it sees the final answers."""
        status = 500
        try:
            response = await handler(request)
            status = response.status
        except web.HTTPException as error:
            status = error.status
            raise
        else:
            return response
        finally:
            self._requests[self._path(request), status] += 1

    def _path(self, request: web.Request) -> str:
        resource = request.match_info.route.resource
        return resource.canonical.removeprefix(self._base) or "/" if resource else OTHER


class Admin(Collector):
    """All figures except Python's own."""

    def __init__(self, context: Context, requests: Counter[tuple[str, int]]) -> None:
        self._context = context
        self._requests = requests

    def collect(self) -> Iterable[Metric]:
        """Collect the current figures."""
        parts = (
            self._problems(),
            self._poll(),
            self._nodes(),
            self._traffic(),
            process_metrics(self._context.start_time),
        )
        return list(chain(*parts))

    def _problems(self) -> Iterator[Metric]:
        problems = self._context.problems
        each = GaugeMetricFamily(
            "nsqadmin_problem",
            "1 for each problem that is there and not muted; the worst thousand.",
            labels=PROBLEM_LABELS,
        )
        muted = 0
        for found in problems.found:
            if found.muted_until:
                muted += 1
            else:
                names = (found.rule, found.severity.value, found.topic, found.channel, found.node)
                each.add_metric([_encodable(name) for name in names], 1)
        yield each
        count = GaugeMetricFamily(
            "nsqadmin_problems", "Problems that are there, muted or not.", labels=["severity"]
        )
        for severity, number in problems.counts.items():
            count.add_metric([severity.value], number)
        yield count
        yield GaugeMetricFamily("nsqadmin_problems_muted", "Problems that are muted.", muted)

    def _poll(self) -> Iterator[Metric]:
        poller = self._context.poller
        cluster = poller.cluster
        versions = {"version": NSQ_VERSION, "nsqfast_version": __version__}
        yield InfoMetricFamily("nsqadmin_build", "NSQ's version and our own.", versions)
        yield CounterMetricFamily(
            "nsqadmin_ticks", "Times that the cluster was asked.", cluster.tick
        )
        yield GaugeMetricFamily(
            "nsqadmin_tick_age_seconds",
            "Since the cluster was asked the last time.",
            max(0.0, time.time() - cluster.at) if cluster.tick else math.nan,
        )
        for name, text, value in (
            ("interval", "Time between two polls.", poller.interval_s),
            ("duration", "Time that the last poll took, waiting included.", poller.took_s),
            ("cpu", "CPU time of the last poll.", poller.cpu_s),
        ):
            yield GaugeMetricFamily(f"nsqadmin_poll_{name}_seconds", text, value)

    def _nodes(self) -> Iterator[Metric]:
        cluster = self._context.poller.cluster
        nodes = GaugeMetricFamily("nsqadmin_nodes", "nsqd that are known.", labels=["state"])
        states = Counter(node.state for node in cluster.nodes.values())
        for state in NodeState:
            nodes.add_metric([state.value], states[state])
        yield nodes
        lookupds = GaugeMetricFamily("nsqadmin_lookupds", "nsqlookupd.", labels=["state"])
        up = sum(lookupd.is_up for lookupd in cluster.lookupds.values())
        lookupds.add_metric(["up"], up)
        lookupds.add_metric(["down"], len(cluster.lookupds) - up)
        yield lookupds
        yield GaugeMetricFamily("nsqadmin_topics", "Topics.", len(cluster.topics))
        channel_count = sum(len(topic.channels) for topic in cluster.topics.values())
        yield GaugeMetricFamily("nsqadmin_channels", "Channels.", channel_count)

    def _traffic(self) -> Iterator[Metric]:
        upstream = self._context.upstream
        yield CounterMetricFamily(
            "nsqadmin_upstream_requests", "Requests to nsqd and nsqlookupd.", upstream.asked_count
        )
        yield CounterMetricFamily(
            "nsqadmin_upstream_errors", "Those that failed.", upstream.failed_count
        )
        requests = CounterMetricFamily(
            "nsqadmin_http_requests", "Requests that were answered.", labels=["path", "status"]
        )
        for (path, status), count in sorted(self._requests.items()):
            requests.add_metric([path, str(status)], count)
        yield requests


def _encodable(name: str) -> str:
    return name.encode("utf-8", "replace").decode()
