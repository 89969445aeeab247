"""The charts of pages, from history or as pictures of Graphite; GET /ui/series?key=K&columns=A,B&range=1h has points
(docs/ADMIN.md), with `since` only those from this unix time on.

Charts are declared on the server: keys of history, lines with their columns, colour and dash. The page carries the plan
as JSON (templates/charts.html); `static/js/charts.js` draws it from `/ui/series`:

    {"query": "key=&columns=in_s%2Cout_s&range=1h", "charts": [
        {"id": "rates", "title": "In and out per second", "unit": "/s", "lines": [
            {"label": "In", "series": 0, "columns": ["in_s"], "colour": 1, "dash": []}]}]}

`series` counts the keys of the query. A line with several columns is their sum.

    {"step_s": 10, "from": 1700000000.0, "to": 1700003600.0, "utc_offset_s": 0, "times": [1700000010.0, ...],
     "series": [{"in_s": [4021.5, null, ...]}, ...], "marks": [{"at": 1700000100.0, "text": "empty billing"}]}

null means unknown: a node that did not answer, a restart. All series share `times`.

With --graphite-url a page has Graphite's pictures, too (docs/ADMIN.md): small graphs of the keys that nsqd sends to
statsd, which are described at https://nsq.io/components/nsqd.html (statsd).
"""

import heapq
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec
import numpy as np
from aiohttp import web
from multidict import MultiMapping
from numpy.typing import NDArray

from nsqfast.nsqadmin.access.permissions import export_only
from nsqfast.nsqadmin.cluster.history_tables import CHANNEL_COLUMNS, NODE_COLUMNS, Key, Series
from nsqfast.nsqadmin.cluster.model import Channel, Topic
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.web.export import answer_file, read_form
from nsqfast.nsqadmin.web.request import PageRequest, Query
from nsqfast.nsqadmin.web.tables import Value
from nsqfast.nsqadmin.web.texts import Link

RANGES = {"15m": 900, "1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600}
RANGE_NAMES = {"15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h"}
RANGE_DEFAULT = "1h"
KEY_SIZES = {"topic": 2, "channel": 3, "node": 2}  # first part, and the number of parts
COLUMNS = NODE_COLUMNS  # all columns
POINT_S = 10.0  # an open page asks for points at least this often, even if no number changes
DEPTH = ("memory_depth", "backend_depth")
LINES_MAX = 5  # colours that can be told apart
# One for each colour, so that lines also differ without colour.
DASHES = ("", "6 4", "2 3", "10 3 2 3", "12 5")
KEYS_MAX = 16
CACHE_ENTRIES_MAX = 256
DECIMALS = 2
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
# A line without any text; the other has axes, and counters per second.
SMALL = {"height": 20, "width": 120, "hideGrid": "true", "hideLegend": "true", "hideAxes": "true"}
SMALL |= {"bgcolor": "ff000000", "fgcolor": "black", "margin": 0}
LARGE = {"height": 450, "width": 800, "bgcolor": "ff000000", "fgcolor": "999999"}


@dataclass(frozen=True, slots=True)
class Line:
    """`colour` is 1 to LINES_MAX; its dash belongs to it."""

    label: str
    columns: Sequence[str]
    colour: int
    key: Key = ()

    @property
    def dash(self) -> str:
        """In the form of SVG's stroke-dasharray."""
        return DASHES[self.colour - 1]


@dataclass(frozen=True, slots=True)
class Chart:
    """`unit` follows each number: "/s", "B" for sizes, or nothing."""

    id: str
    title: str
    lines: Sequence[Line]
    unit: str = ""


def published_chart(key: Key = ()) -> Chart:
    """Of a topic, a node or the cluster."""
    return Chart("rates", "Published", [Line("Published", ["in_s"], 1, key)], "/s")


def depth_chart(key: Key = ()) -> Chart:
    """Waiting messages, in memory and on disk."""
    memory, disk = DEPTH
    lines = [Line("Memory", [memory], 1, key), Line("Disk", [disk], 2, key)]
    return Chart("depth", "Depth", lines)


def topic_charts(topic: Topic) -> list[Chart]:
    """Its rate; the depth of the LINES_MAX deepest channels, or of its own queue if there are none."""
    deepest = heapq.nlargest(LINES_MAX, topic.channels.values(), key=lambda each: each.counts.depth)
    lines = [
        Line(channel.name, DEPTH, number, ("channel", topic.name, channel.name))
        for number, channel in enumerate(sorted(deepest, key=lambda each: each.name), 1)
    ]
    key = ("topic", topic.name)
    title = f"Depth of the {LINES_MAX} deepest channels"
    if len(topic.channels) <= LINES_MAX:
        title = "Depth per channel"
    if not lines:
        title, lines = "Depth of the topic", [Line("Topic", DEPTH, 1, key)]
    return [published_chart(key), Chart("depth", title, lines)]


def channel_charts(channel: Channel) -> list[Chart]:
    """Rates; waiting messages; messages in flight or deferred."""
    key = ("channel", channel.topic, channel.name)
    return [
        Chart(
            "rates",
            "Per second",
            [
                Line("Published", ["in_s"], 1, key),
                Line("Finished", ["out_s"], 2, key),
                Line("Requeued", ["requeue_s"], 3, key),
                Line("Timed out", ["timeout_s"], 4, key),
            ],
            "/s",
        ),
        depth_chart(key),
        Chart(
            "held",
            "In flight and deferred",
            [Line("In flight", ["in_flight"], 1, key), Line("Deferred", ["deferred"], 2, key)],
        ),
    ]


def node_charts(node: str) -> list[Chart]:
    """Published messages, waiting ones, connections, and the size of nsqd's heap."""
    key = ("node", node)
    return [
        published_chart(key),
        depth_chart(key),
        Chart("clients", "Clients", [Line("Clients", ["clients"], 1, key)]),
        Chart("memory", "Memory of nsqd", [Line("Memory", ["memory"], 1, key)], "B"),
    ]


@dataclass(frozen=True, slots=True)
class Plan:
    """All charts of a page for one range; they share one request to the server."""

    charts: Sequence[Chart]
    range: str
    links: list[Link] = field(default_factory=list)

    @property
    def keys(self) -> list[Key]:
        """Each once, in the order of the lines."""
        return list(dict.fromkeys(line.key for chart in self.charts for line in chart.lines))

    @property
    def query(self) -> str:
        used = {column for chart in self.charts for line in chart.lines for column in line.columns}
        columns = ",".join(column for column in COLUMNS if column in used)
        keys = [("key", format_key(key)) for key in self.keys]
        return urlencode([*keys, ("columns", columns), ("range", self.range)])

    def to_json(self) -> dict[str, Any]:
        places = {key: place for place, key in enumerate(self.keys)}
        return {
            "query": self.query,
            "range": RANGE_NAMES[self.range],
            "charts": [
                {
                    "id": chart.id,
                    "title": chart.title,
                    "unit": chart.unit,
                    "lines": [
                        {
                            "label": line.label,
                            "series": places[line.key],
                            "columns": list(line.columns),
                            "colour": line.colour,
                            "dash": [int(part) for part in line.dash.split()],
                        }
                        for line in chart.lines
                    ],
                }
                for chart in self.charts
            ],
        }


def make_plan(query: Query, history_s: float, charts: Sequence[Chart]) -> Plan:
    """For the range in the page's address; ranges that history cannot fill are left out, except the first two."""
    known = {name: RANGE_NAMES[name] for name in RANGES if RANGES[name] <= max(history_s, 3600)}
    chosen = query.get("range", RANGE_DEFAULT)
    if chosen not in known:
        chosen = RANGE_DEFAULT
    return Plan(charts, chosen, query.links("range", known, chosen, RANGE_DEFAULT))


def format_key(key: Key) -> str:
    """`topic/orders`: each part is quoted, because names may contain anything."""
    return "/".join(quote(part, safe="") for part in key)


def parse_key(text: str) -> Key:
    """The inverse of format_key; ValueError says what is wrong."""
    parts = tuple(unquote(part) for part in text.split("/")) if text else ()
    if parts and len(parts) != KEY_SIZES.get(parts[0]):
        raise ValueError("key is empty, topic/T, channel/T/C or node/HOST:PORT")
    return parts


@dataclass(frozen=True, slots=True)
class Question:
    keys: tuple[Key, ...]
    columns: tuple[str, ...]
    range: str
    since: float


def read_query(query: MultiMapping[str]) -> Question:
    """ValueError says what is wrong with it."""
    texts = query.getall("key", [""])
    if len(texts) > KEYS_MAX:
        raise ValueError(f"more than {KEYS_MAX} keys")
    columns = tuple(query.get("columns", ",".join(CHANNEL_COLUMNS)).split(","))
    if unknown := [name for name in columns if name not in COLUMNS]:
        raise ValueError(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    chosen = query.get("range", RANGE_DEFAULT)
    if chosen not in RANGES:
        raise ValueError(f"range is one of {', '.join(RANGES)}")
    since = float(query.get("since", "0"))
    if not since >= 0:
        raise ValueError("since is a unix time")
    return Question(tuple(parse_key(text) for text in texts), columns, chosen, since)


class SeriesHandler:
    """Viewers of the same charts share one answer per tick."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tick = -1
        self._answers: dict[Question, bytes] = {}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        try:
            question = read_query(request.query)
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        if request.query.get("format"):
            return await export_only(partial(self._serve_file, question))(request)
        self._context.poller.seen()
        return web.Response(body=self._answer(question), content_type="application/json")

    def _answer(self, question: Question) -> bytes:
        tick = self._context.poller.cluster.tick
        if tick != self._tick or len(self._answers) >= CACHE_ENTRIES_MAX:
            self._tick, self._answers = tick, {}
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answers[question] = msgspec.json.encode(self.read(question))
        return answer

    def read(self, question: Question) -> dict[str, Any]:
        history = self._context.history
        range_s = RANGES[question.range]
        until = self._context.poller.cluster.at or time.time()
        found = [history.series(key, range_s) for key in question.keys]
        # A younger entity has fewer points. A tick at the end of a step appears twice.
        times = np.unique(max((series.times for series in found), key=len))
        since = max(question.since, until - range_s)
        wanted = times >= since
        marks = {(mark.at, mark.text) for series in found for mark in series.marks}
        return {
            "step_s": found[0].step_s,
            "from": until - range_s,
            "to": until,
            "utc_offset_s": time.localtime(until).tm_gmtoff,
            "times": times[wanted].tolist(),
            "series": [
                {name: read_column(series, name, times[wanted]) for name in question.columns}
                for series in found
            ],
            "marks": [{"at": at, "text": text} for at, text in sorted(marks) if at >= since],
        }

    async def _serve_file(self, question: Question, request: web.Request) -> web.Response:
        form = read_form(request)
        names, rows = make_rows(question, self.read(question))
        keys = [format_key(key) or "cluster" for key in question.keys]
        target = {"series": " ".join(keys), "range": question.range}
        name = f"nsqadmin-series-{question.range}"
        return await answer_file(request, form, name, target, names, rows)


def read_column(series: Series, name: str, times: NDArray[np.float64]) -> list[float | None]:
    """The values at these times; None if history has none."""
    column = series.columns.get(name)
    if column is None or not len(series.times):
        return [None] * len(times)
    places = np.minimum(np.searchsorted(series.times, times), len(series.times) - 1)
    values = np.where(series.times[places] == times, column[places].astype(np.float64), np.nan)
    return [None if math.isnan(value) else value for value in values.round(DECIMALS).tolist()]


def make_rows(question: Question, answer: dict[str, Any]) -> tuple[list[str], list[list[Value]]]:
    """A row per point: its time, then each column of each key."""
    names, columns = ["time"], []
    for key, series in zip(question.keys, answer["series"], strict=True):
        for name in question.columns:
            names.append("/".join((*key[1:], name)))
            columns.append(series[name])
    rows: list[list[Value]] = [
        [format_time(at), *values] for at, *values in zip(answer["times"], *columns, strict=True)
    ]
    return names, rows


def format_time(at: float) -> str:
    """ISO 8601; with milliseconds only for the last point, whose step is not over yet."""
    moment = datetime.fromtimestamp(round(at, 3), UTC)
    precision = "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


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


def make_pictures(
    request: PageRequest,
    metrics: Sequence[str],
    topic: str,
    channel: str = "",
    quantiles: Sequence[float] = (),
) -> Pictures | None:
    """For a topic or channel over all nodes; None without --graphite-url. `quantiles` are those that nsqd measures."""
    options = request.context.options
    wanted = {
        metric: [f"sumSeries({statsd_key(options, metric, topic, channel)})"] for metric in metrics
    }
    if quantiles:
        wanted[LATENCY] = [
            latency_target(options, topic, channel, quantile) for quantile in quantiles
        ]
    return _pictures(request, wanted)


def make_node_pictures(request: PageRequest, node: str) -> Pictures | None:
    """For the memory of an nsqd, by its key."""
    keys = {
        metric: place_key(request.context.options, metric, "mem.", host_name(node))
        for metric in NODE_METRICS
    }
    # It runs so rarely that most steps have no value.
    keys["gc_runs"] = f"movingAverage({keys['gc_runs']},45)"
    return _pictures(request, {metric: [key] for metric, key in keys.items()})


def _pictures(request: PageRequest, wanted: Mapping[str, Sequence[str]]) -> Pictures | None:
    options, query = request.context.options, request.query
    if not options.graphite_url:
        return None
    timeframe = query.choice("t", TIMEFRAMES)
    names = {name: name for name in TIMEFRAMES}
    links = query.links("t", names, timeframe, TIMEFRAMES[0])
    address = (
        request.context.urls.base if options.proxy_graphite else options.graphite_url.rstrip("/")
    )
    pictures = [
        make_picture(options, f"{address}/render", timeframe, metric, targets)
        for metric, targets in wanted.items()
        if timeframe != "off"
    ]
    return Pictures(pictures, links)


def make_picture(
    options: Options, address: str, timeframe: str, metric: str, targets: Sequence[str]
) -> Picture:
    """`address` is that of Graphite's /render."""
    interval_s = max(1, options.statsd_interval_ns // 10**9)  # of nsqd's reports to statsd
    summed = [f'summarize({target},"{interval_s}sec","avg")' for target in targets]
    last = {"from": f"-{timeframe}", "until": "-1min"}
    style = {"colorList": color_of(metric), "yMin": 0}
    small = urlencode({**SMALL, **style, "target": summed, **last}, doseq=True)
    if metric in COUNTERS:
        summed = [f"scale({each},{1 / interval_s:.10g})" for each in summed]
    large = urlencode({**LARGE, **style, "target": summed, **last}, doseq=True)
    rate_target = targets[0] if metric == "message_count" else ""
    return Picture(LABELS[metric], f"{address}?{small}", f"{address}?{large}", rate_target)


def statsd_key(options: Options, metric: str, topic: str, channel: str = "") -> str:
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
    key = statsd_key(options, f"{LATENCY}_{int(quantile * 100 + 0.5)}", topic, channel)
    return f"scale(averageSeries({key}),0.000001)"


def clean_name(name: str) -> str:
    """The name as nsqd sends it: without the `#` of ephemeral names, and without Graphite's special characters."""
    if name == ANY:
        return name
    return _DROPPED.sub("", name.replace(" ", "_").replace("/", "-"))


def color_of(metric: str) -> str:
    """Red for waiting messages; with several lines each has its own."""
    if metric == LATENCY or metric in NODE_METRICS:
        return SEVERAL
    return RED if metric in ("depth", "deferred_count") else BLUE
