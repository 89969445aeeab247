"""Graphite's pictures, if it is configured: the keys that nsqd sends to statsd, and the addresses of their graphs.

nsqd's keys are described at https://nsq.io/components/nsqd.html (statsd); `--statsd-prefix`, `--statsd-counter-format`
and `--statsd-gauge-format` surround them. The browser asks Graphite, or with --proxy-graphite us.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.web.request import Query
from nsqfast.nsqadmin.web.texts import Link

TIMEFRAMES = ("2h", "1h", "12h", "24h", "48h", "168h", "off")  # the first is the default
COUNTERS = frozenset({"requeue_count", "timeout_count", "message_count", "gc_runs"})
TOPIC_METRICS = ("depth", "message_count")
CHANNEL_METRICS = (
    "depth",
    "in_flight_count",
    "deferred_count",
    "requeue_count",
    "timeout_count",
    "message_count",
    "clients",
)
NODE_METRICS = ("*_bytes", "gc_pause_*", "gc_runs", "heap_objects")
LATENCY = "e2e_processing_latency"
LABELS = {
    "depth": "Depth",
    "message_count": "Messages",
    "in_flight_count": "In flight",
    "deferred_count": "Deferred",
    "requeue_count": "Requeued",
    "timeout_count": "Timed out",
    "clients": "Connections",
    LATENCY: "End to end, ms",
    "*_bytes": "GC pressure",
    "gc_pause_*": "GC pause percentiles",
    "gc_runs": "GC runs",
    "heap_objects": "Heap objects in use",
}
ANY = "*"  # any topic, channel or node
_DROPPED = re.compile(r"[^A-Za-z0-9_.-]")
RED, BLUE = "#cc0000", "#1f78b4"
SEVERAL = f"{RED},#2e8b57,{BLUE},#7b3f9e"


@dataclass(frozen=True, slots=True)
class Picture:
    """A small graph that links to a large one."""

    label: str
    small: str
    large: str
    rate_target: str  # of /api/graphite; '' for gauges


@dataclass(frozen=True, slots=True)
class Pictures:
    """The pictures of one page. `links` choose the timeframe."""

    pictures: Sequence[Picture]
    links: Sequence[Link]
    is_proxied: bool


def make_pictures(
    context: Context,
    query: Query,
    metrics: Sequence[str],
    topic: str,
    channel: str = "",
    quantiles: Sequence[float] = (),
) -> Pictures | None:
    """For a topic or channel over all nodes; None without --graphite-url. `quantiles` are those that nsqd measures."""
    options = context.options
    wanted = {
        metric: [f"sumSeries({format_key(options, metric, topic, channel)})"] for metric in metrics
    }
    if quantiles:
        wanted[LATENCY] = [
            latency_target(options, topic, channel, quantile) for quantile in quantiles
        ]
    return _pictures(context, query, wanted)


def make_node_pictures(context: Context, query: Query, node: str) -> Pictures | None:
    """For the memory of an nsqd, by its key."""
    keys = {
        metric: place_key(context.options, metric, "mem.", host_name(node))
        for metric in NODE_METRICS
    }
    # It runs so rarely that most steps have no value.
    keys["gc_runs"] = f"movingAverage({keys['gc_runs']},45)"
    return _pictures(context, query, {metric: [key] for metric, key in keys.items()})


def _pictures(
    context: Context, query: Query, wanted: Mapping[str, Sequence[str]]
) -> Pictures | None:
    options = context.options
    if not options.graphite_url:
        return None
    timeframe = query.choice("t", TIMEFRAMES)
    links = [
        Link(name, query.with_({"t": "" if name == TIMEFRAMES[0] else name}), name == timeframe)
        for name in TIMEFRAMES
    ]
    address = context.urls.base if options.proxy_graphite else options.graphite_url.rstrip("/")
    pictures = [
        Picture(
            LABELS[metric],
            small_graph(options, address, timeframe, metric, targets),
            large_graph(options, address, timeframe, metric, targets),
            targets[0] if metric == "message_count" else "",
        )
        for metric, targets in wanted.items()
        if timeframe != "off"
    ]
    return Pictures(pictures, links, options.proxy_graphite)


def format_key(options: Options, metric: str, topic: str, channel: str = "") -> str:
    """The key of a metric over all nodes, as stored by statsd."""
    place = f"topic.{clean_name(topic)}."
    if channel:
        place += f"channel.{clean_name(channel)}."
    return place_key(options, metric, place)


def place_key(options: Options, metric: str, place: str, host: str = ANY) -> str:
    """As nsqd sends it for `place`; `host` is `*` for all."""
    prefix = options.statsd_prefix.replace("%s", host)
    form = options.statsd_counter_format if metric in COUNTERS else options.statsd_gauge_format
    return form.replace("%s", f"{prefix}.{place}{metric}")


def host_name(node: str) -> str:
    """From `broadcast_address:http_port`, as nsqd names itself."""
    return _DROPPED.sub("", re.sub(r"[.:]", "_", node))


def latency_target(options: Options, topic: str, channel: str, quantile: float) -> str:
    """The mean of the nodes in milliseconds; nsqd names the key after the percentage, in whole numbers."""
    key = format_key(options, f"{LATENCY}_{int(quantile * 100 + 0.5)}", topic, channel)
    return f"scale(averageSeries({key}),0.000001)"


def clean_name(name: str) -> str:
    """The name as nsqd sends it: without the `#` of ephemeral names, and without Graphite's special characters."""
    if name == ANY:
        return name
    return _DROPPED.sub("", name.replace(" ", "_").replace("/", "-"))


def small_graph(
    options: Options, address: str, timeframe: str, metric: str, targets: Sequence[str]
) -> str:
    """A line without any text."""
    return render_address(
        address,
        timeframe,
        height=20,
        width=120,
        hideGrid="true",
        hideLegend="true",
        hideAxes="true",
        bgcolor="ff000000",
        fgcolor="black",
        margin=0,
        colorList=color_of(metric),
        yMin=0,
        target=[summarize(options, target) for target in targets],
    )


def large_graph(
    options: Options, address: str, timeframe: str, metric: str, targets: Sequence[str]
) -> str:
    """With axes; counters per second."""
    summed = [summarize(options, target) for target in targets]
    if metric in COUNTERS:
        summed = [f"scale({each},{1 / interval_s(options):.10g})" for each in summed]
    return render_address(
        address,
        timeframe,
        height=450,
        width=800,
        bgcolor="ff000000",
        fgcolor="999999",
        colorList=color_of(metric),
        yMin=0,
        target=summed,
    )


def summarize(options: Options, target: str) -> str:
    """Summarize in steps of --statsd-interval."""
    return f'summarize({target},"{interval_s(options)}sec","avg")'


def interval_s(options: Options) -> int:
    """statsd's interval in seconds."""
    return max(1, options.statsd_interval_ns // 10**9)


def color_of(metric: str) -> str:
    """Red for waiting messages; with several lines each has its own."""
    if metric == LATENCY or metric in NODE_METRICS:
        return SEVERAL
    return RED if metric in ("depth", "deferred_count") else BLUE


def render_address(address: str, timeframe: str, **values: str | int | list[str]) -> str:
    """The URL of Graphite's /render."""
    return f"{address}/render?" + urlencode(
        {**values, "from": f"-{timeframe}", "until": "-1min"}, doseq=True
    )
