"""The figures behind /metrics, read on request."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from nsqfast.net.http_message import ANSWERED, OTHER
from nsqfast.nsqadmin.access.origin import readable
from nsqfast.nsqadmin.cluster.model import NodeState
from nsqfast.nsqadmin.context import Context
from nsqfast.stats.process import BUILD_TEXT, process_metrics, python_metrics, request_metrics
from nsqfast.stats.prometheus import Format
from nsqfast.version import NSQ_VERSION, __version__

PROBLEM_LABELS = ("rule", "severity", "topic", "channel", "node")
GAUGES = {
    "problem": "This is 1 for each problem that is there and not muted; only the worst thousand have a series.",
    "problems": "This is the number of problems that are there, muted or not, by severity.",
    "problems_muted": "This is the number of problems that are muted.",
    "tick_age_seconds": "This is the time in seconds since the last poll of the cluster.",
    "poll_interval_seconds": "This is the time in seconds between two polls.",
    "poll_duration_seconds": "This is the time in seconds that the last poll took, waiting included.",
    "poll_cpu_seconds": "This is the processor time in seconds of the last poll.",
    "nodes": "This is the number of nsqd that are known, by state.",
    "lookupds": "This is the number of nsqlookupd that are known, by state.",
    "topics": "This is the number of topics in the cluster.",
    "channels": "This is the number of channels in the cluster.",
}
COUNTERS = {
    "ticks": "This counts the polls of the cluster.",
    "upstream_requests": "This counts the requests to nsqd and nsqlookupd.",
    "upstream_errors": "This counts the requests to nsqd and nsqlookupd that failed.",
}


class Metrics:
    """The figures of one nsqadmin, and the middleware that counts its requests."""

    def __init__(self, context: Context) -> None:
        self._base = context.urls.decoded_base
        self._context = context

    async def answer(self, request: web.Request) -> web.Response:
        wanted = Format(request.headers.get("Accept", ""))
        metrics = self.collect()
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
            ANSWERED[self._path(request), status] += 1

    def _path(self, request: web.Request) -> str:
        resource = request.match_info.route.resource
        return resource.canonical.removeprefix(self._base) or "/" if resource else OTHER

    def collect(self) -> list[Metric]:
        parts = (
            self._problems(),
            self._poll(),
            self._cluster(),
            request_metrics("nsqadmin", ANSWERED),
            process_metrics(self._context.start_time),
            python_metrics(),
        )
        return list(chain(*parts))

    def _problems(self) -> Iterator[Metric]:
        problems = self._context.problems
        rows: dict[tuple[str, ...], float] = {
            (one.rule, one.severity.value, one.topic, one.channel, one.node): 1.0
            for one in problems.found
            if not one.muted_until
        }
        yield _gauges("problem", PROBLEM_LABELS, rows)
        counts = {severity.value: count for severity, count in problems.counts.items()}
        yield _by_label("problems", "severity", counts)
        yield _gauge("problems_muted", len(problems.found) - len(rows))

    def _poll(self) -> Iterator[Metric]:
        poller, tick = self._context.poller, self._context.poller.cluster.tick
        versions = {"version": NSQ_VERSION, "nsqfast_version": __version__}
        yield InfoMetricFamily("nsqadmin_build", BUILD_TEXT, versions)
        yield _counter("ticks", tick)
        age_s = max(0.0, time.time() - poller.cluster.at) if tick else math.nan
        yield _gauge("tick_age_seconds", age_s)
        yield _gauge("poll_interval_seconds", poller.interval_s)
        yield _gauge("poll_duration_seconds", poller.took_s)
        yield _gauge("poll_cpu_seconds", poller.cpu_s)

    def _cluster(self) -> Iterator[Metric]:
        cluster, upstream = self._context.poller.cluster, self._context.upstream
        states = Counter(node.state for node in cluster.nodes.values())
        yield _by_label("nodes", "state", {state.value: states[state] for state in NodeState})
        up = sum(lookupd.is_up for lookupd in cluster.lookupds.values())
        lookupds = {"up": up, "down": len(cluster.lookupds) - up}
        yield _by_label("lookupds", "state", lookupds)
        yield _gauge("topics", len(cluster.topics))
        yield _gauge("channels", sum(len(topic.channels) for topic in cluster.topics.values()))
        yield _counter("upstream_requests", upstream.asked_count)
        yield _counter("upstream_errors", upstream.failed_count)


def _gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(f"nsqadmin_{name}", GAUGES[name], value)


def _gauges(
    name: str, labels: tuple[str, ...], rows: Mapping[tuple[str, ...], float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"nsqadmin_{name}", GAUGES[name], labels=labels)
    for values, value in rows.items():
        family.add_metric([readable(text) for text in values], value)
    return family


def _by_label(name: str, label: str, counts: Mapping[str, int]) -> Metric:
    return _gauges(name, (label,), {(value,): count for value, count in counts.items()})


def _counter(name: str, value: int) -> Metric:
    return CounterMetricFamily(f"nsqadmin_{name}", COUNTERS[name], value)
