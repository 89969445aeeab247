"""The figures behind /metrics, read on request."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterator
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
from nsqfast.nsqadmin.cluster.model import NodeState
from nsqfast.nsqadmin.context import Context
from nsqfast.stats.connections import request_metrics
from nsqfast.stats.process import BUILD_TEXT, process_metrics, python_metrics
from nsqfast.stats.prometheus import Format
from nsqfast.version import NSQ_VERSION, __version__

PROBLEM_LABELS = ("rule", "severity", "topic", "channel", "node")


class Metrics:
    """The figures of one nsqadmin, and the middleware that counts its requests."""

    def __init__(self, context: Context) -> None:
        self._base = context.urls.decoded_base
        self._context = context

    async def answer(self, request: web.Request) -> web.Response:
        """All figures, in the format that the Accept header asks for."""
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
            self._nodes(),
            self._traffic(),
            request_metrics("nsqadmin", ANSWERED),
            process_metrics(self._context.start_time),
            python_metrics(),
        )
        return list(chain(*parts))

    def _problems(self) -> Iterator[Metric]:
        problems = self._context.problems
        each = GaugeMetricFamily(
            "nsqadmin_problem",
            "This is 1 for each problem that is there and not muted; only the worst thousand have a series.",
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
            "nsqadmin_problems",
            "This is the number of problems that are there, muted or not, by severity.",
            labels=["severity"],
        )
        for severity, number in problems.counts.items():
            count.add_metric([severity.value], number)
        yield count
        yield GaugeMetricFamily(
            "nsqadmin_problems_muted", "This is the number of problems that are muted.", muted
        )

    def _poll(self) -> Iterator[Metric]:
        poller = self._context.poller
        cluster = poller.cluster
        versions = {"version": NSQ_VERSION, "nsqfast_version": __version__}
        yield InfoMetricFamily("nsqadmin_build", BUILD_TEXT, versions)
        yield CounterMetricFamily(
            "nsqadmin_ticks", "This counts the polls of the cluster.", cluster.tick
        )
        yield GaugeMetricFamily(
            "nsqadmin_tick_age_seconds",
            "This is the time in seconds since the last poll of the cluster.",
            max(0.0, time.time() - cluster.at) if cluster.tick else math.nan,
        )
        for name, text, value in (
            ("interval", "This is the time in seconds between two polls.", poller.interval_s),
            (
                "duration",
                "This is the time in seconds that the last poll took, waiting included.",
                poller.took_s,
            ),
            ("cpu", "This is the processor time in seconds of the last poll.", poller.cpu_s),
        ):
            yield GaugeMetricFamily(f"nsqadmin_poll_{name}_seconds", text, value)

    def _nodes(self) -> Iterator[Metric]:
        cluster = self._context.poller.cluster
        nodes = GaugeMetricFamily(
            "nsqadmin_nodes",
            "This is the number of nsqd that are known, by state.",
            labels=["state"],
        )
        states = Counter(node.state for node in cluster.nodes.values())
        for state in NodeState:
            nodes.add_metric([state.value], states[state])
        yield nodes
        lookupds = GaugeMetricFamily(
            "nsqadmin_lookupds",
            "This is the number of nsqlookupd that are known, by state.",
            labels=["state"],
        )
        up = sum(lookupd.is_up for lookupd in cluster.lookupds.values())
        lookupds.add_metric(["up"], up)
        lookupds.add_metric(["down"], len(cluster.lookupds) - up)
        yield lookupds
        yield GaugeMetricFamily(
            "nsqadmin_topics", "This is the number of topics in the cluster.", len(cluster.topics)
        )
        channel_count = sum(len(topic.channels) for topic in cluster.topics.values())
        yield GaugeMetricFamily(
            "nsqadmin_channels", "This is the number of channels in the cluster.", channel_count
        )

    def _traffic(self) -> Iterator[Metric]:
        upstream = self._context.upstream
        yield CounterMetricFamily(
            "nsqadmin_upstream_requests",
            "This counts the requests to nsqd and nsqlookupd.",
            upstream.asked_count,
        )
        yield CounterMetricFamily(
            "nsqadmin_upstream_errors",
            "This counts the requests to nsqd and nsqlookupd that failed.",
            upstream.failed_count,
        )


def _encodable(name: str) -> str:
    return name.encode("utf-8", "replace").decode()
