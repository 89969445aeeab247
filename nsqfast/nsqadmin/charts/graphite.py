"""The pictures of Graphite, for who has one: the keys that nsqd sends to statsd, and the addresses of their graphs.

nsqd's keys are described at https://nsq.io/components/nsqd.html (statsd); `--statsd-prefix`, `--statsd-counter-format`
and `--statsd-gauge-format` say what stands around them. The browser asks Graphite, or with --proxy-graphite us.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.web.query import Query
from nsqfast.nsqadmin.web.view import Link

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
LABELS = {
    "depth": "Depth",
    "message_count": "Messages",
    "in_flight_count": "In flight",
    "deferred_count": "Deferred",
    "requeue_count": "Requeued",
    "timeout_count": "Timed out",
    "clients": "Connections",
}
ANY = "*"  # any topic, channel or node
_DROPPED = re.compile(r"[^A-Za-z0-9_.-]")
RED, BLUE = "#cc0000", "#1f78b4"


@dataclass(frozen=True, slots=True)
class Picture:
    """A small graph that leads to a large one."""

    label: str
    small: str
    large: str
    rate_target: str  # of /api/graphite; '' for gauges


@dataclass(frozen=True, slots=True)
class Pictures:
    """Of one page. `links` choose the timeframe."""

    pictures: Sequence[Picture]
    links: Sequence[Link]
    is_proxied: bool


def make_pictures(
    context: Context, query: Query, metrics: Sequence[str], topic: str, channel: str = ""
) -> Pictures | None:
    """Of a topic or channel over all nodes; None without --graphite-url."""
    options = context.options
    if not options.graphite_url:
        return None
    timeframe = query.choice("t", TIMEFRAMES)
    links = [
        Link(name, query.with_({"t": "" if name == TIMEFRAMES[0] else name}), name == timeframe)
        for name in TIMEFRAMES
    ]
    address = context.urls.base if options.proxy_graphite else options.graphite_url.rstrip("/")
    pictures = []
    for metric in metrics if timeframe != "off" else ():
        target = f"sumSeries({format_key(options, metric, topic, channel)})"
        pictures.append(
            Picture(
                LABELS[metric],
                small_graph(options, address, timeframe, metric, target),
                large_graph(options, address, timeframe, metric, target),
                target if metric == "message_count" else "",
            )
        )
    return Pictures(pictures, links, options.proxy_graphite)


def format_key(
    options: Options, metric: str, topic: str, channel: str = "", host: str = ANY
) -> str:
    """The key of a metric as statsd stores it; `host` is `*` for all, or `broadcast_address:http_port`."""
    key = f"topic.{clean_name(topic)}."
    if channel:
        key += f"channel.{clean_name(channel)}."
    prefix = options.statsd_prefix.replace("%s", re.sub(r"[.:]", "_", host))
    form = options.statsd_counter_format if metric in COUNTERS else options.statsd_gauge_format
    return form.replace("%s", f"{prefix}.{key}{metric}")


def clean_name(name: str) -> str:
    """As nsqd sends it: without the `#` of ephemeral names, and without whatever else Graphite takes for its own."""
    if name == ANY:
        return name
    return _DROPPED.sub("", name.replace(" ", "_").replace("/", "-"))


def small_graph(options: Options, address: str, timeframe: str, metric: str, target: str) -> str:
    """A line without words beside it."""
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
        target=summarize(options, target),
    )


def large_graph(options: Options, address: str, timeframe: str, metric: str, target: str) -> str:
    """With axes; counters per second."""
    summed = summarize(options, target)
    if metric in COUNTERS:
        summed = f"scale({summed},{1 / interval_s(options):.10g})"
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
    """In steps of --statsd-interval."""
    return f'summarize({target},"{interval_s(options)}sec","avg")'


def interval_s(options: Options) -> int:
    """Of statsd."""
    return max(1, options.statsd_interval_ns // 10**9)


def color_of(metric: str) -> str:
    """Red for what waits."""
    return RED if metric in ("depth", "deferred_count") else BLUE


def render_address(address: str, timeframe: str, **values: str | int) -> str:
    """Of Graphite's /render."""
    return f"{address}/render?" + urlencode({**values, "from": f"-{timeframe}", "until": "-1min"})
