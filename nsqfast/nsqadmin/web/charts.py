"""The charts of pages, and GET /ui/series?key=K&columns=A,B&range=1h: their points, for the page or as an export.

Charts are declared on the server: keys of history, lines with their columns, colour and dash. The page carries the plan
as JSON (templates/charts.html); `static/js/charts.js` draws it from `/ui/series`:

    {"query": "key=&columns=in_s%2Cout_s&range=1h", "charts": [
        {"id": "rates", "title": "In and out per second", "unit": "/s", "lines": [
            {"label": "In", "series": 0, "columns": ["in_s"], "colour": 1, "dash": []}]}]}

`series` counts the keys of the query. A line with several columns is their sum.

    key      once per series: empty for the whole cluster, `topic/T`, `channel/T/C`, `node/HOST:PORT`, parts quoted
    columns  names of COLUMNS
    range    15m, 1h, 6h or 24h, back from the last tick
    since    only points from this unix time on
    format   csv or json: a file with a row per point, audited and subject to --no-export

    {"step_s": 10, "from": 1700000000.0, "to": 1700003600.0, "utc_offset_s": 0, "times": [1700000010.0, ...],
     "series": [{"in_s": [4021.5, null, ...]}, ...], "marks": [{"at": 1700000100.0, "text": "empty billing"}]}

null means unknown: a node that did not answer, a restart. All series share `times`.
"""

import csv
import io
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec
import numpy as np
from aiohttp import web
from multidict import MultiMapping
from numpy.typing import NDArray

from nsqfast.nsqadmin.access.permissions import export_only
from nsqfast.nsqadmin.cluster.history_tables import CHANNEL_COLUMNS, NODE_COLUMNS, Key, Series
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.web.export import quote_formula
from nsqfast.nsqadmin.web.request import Query
from nsqfast.nsqadmin.web.texts import Link

RANGES = {"15m": 900, "1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600}
RANGE_NAMES = {"15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h"}
RANGE_DEFAULT = "1h"
KEY_SIZES = {
    "topic": 2,
    "channel": 3,
    "node": 2,
}  # first part, and the number of parts
COLUMNS = NODE_COLUMNS  # all columns
POINT_S = 10.0  # an open page asks for points at least this often, even if no number changes
DEPTH = ("memory_depth", "backend_depth")
LINES_MAX = 5  # colours that can be told apart
# One for each colour, so that lines also differ without colour.
DASHES = ("", "6 4", "2 3", "10 3 2 3", "12 5")


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
        """The query after `/ui/series?`."""
        used = {column for chart in self.charts for line in chart.lines for column in line.columns}
        columns = ",".join(column for column in COLUMNS if column in used)
        keys = [("key", format_key(key)) for key in self.keys]
        return urlencode([*keys, ("columns", columns), ("range", self.range)])

    @property
    def range_text(self) -> str:
        """The range in a summary's words."""
        return RANGE_NAMES[self.range]

    def to_json(self) -> dict[str, Any]:
        """The plan that the page carries."""
        places = {key: place for place, key in enumerate(self.keys)}
        return {
            "query": self.query,
            "range": self.range_text,
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
    known = [name for name, range_s in RANGES.items() if range_s <= max(history_s, 3600)]
    chosen = query.get("range", RANGE_DEFAULT)
    if chosen not in known:
        chosen = RANGE_DEFAULT
    links = [
        Link(
            RANGE_NAMES[name],
            query.with_({"range": "" if name == RANGE_DEFAULT else name}),
            name == chosen,
        )
        for name in known
    ]
    return Plan(charts, chosen, links)


def format_key(key: Key) -> str:
    """`topic/orders`: each part is quoted, because names may contain anything."""
    return "/".join(quote(part, safe="") for part in key)


def parse_key(text: str) -> Key:
    """The inverse of format_key; ValueError says what is wrong."""
    parts = tuple(unquote(part) for part in text.split("/")) if text else ()
    if parts and len(parts) != KEY_SIZES.get(parts[0]):
        raise ValueError("key is empty, topic/T, channel/T/C or node/HOST:PORT")
    return parts


KEYS_MAX = 16
CACHE_ENTRIES_MAX = 256
DECIMALS = 2


@dataclass(frozen=True, slots=True)
class Question:
    """The query in the address."""

    keys: tuple[Key, ...]
    columns: tuple[str, ...]
    range: str
    since: float


def parse_question(request: web.Request) -> Question:
    """HTTPBadRequest says what is wrong with it."""
    try:
        return read_query(request.query)
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from None


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
        """See the module."""
        question = parse_question(request)
        if request.query.get("format"):
            return await export_only(self._serve_file)(request)
        self._context.poller.seen()
        return web.Response(
            body=self._answer(question),
            content_type="application/json",
            headers={"Cache-Control": "no-store"},
        )

    def _answer(self, question: Question) -> bytes:
        tick = self._context.poller.cluster.tick
        if tick != self._tick or len(self._answers) >= CACHE_ENTRIES_MAX:
            self._tick, self._answers = tick, {}
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answers[question] = msgspec.json.encode(self.read(question))
        return answer

    def read(self, question: Question) -> dict[str, Any]:
        """The JSON described in the module's docstring."""
        history = self._context.history
        range_s = RANGES[question.range]
        until = self._context.poller.cluster.at or time.time()
        found = [history.series(key, range_s) for key in question.keys]
        # A younger entity has fewer points. A tick at the end of a step appears twice.
        times = np.unique(max((series.times for series in found), key=len))
        wanted = times >= max(question.since, until - range_s)
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
            "marks": [
                {"at": at, "text": text}
                for at, text in sorted(marks)
                if at >= max(question.since, until - range_s)
            ],
        }

    async def _serve_file(self, request: web.Request) -> web.Response:
        question = parse_question(request)
        form = request.query["format"]
        if form not in ("csv", "json"):
            raise web.HTTPBadRequest(text="format is csv or json")
        names, rows = make_rows(question, self.read(question))
        body = to_csv(names, rows) if form == "csv" else to_json(names, rows)
        keys = [format_key(key) or "cluster" for key in question.keys]
        await self._context.audit.note(
            request,
            "export",
            {"series": " ".join(keys), "range": question.range},
            effect={"format": form, "rows": len(rows)},
            outcome="ok",
        )
        return web.Response(
            body=body.encode("utf-8", "replace"),
            content_type="text/csv" if form == "csv" else "application/json",
            charset="utf-8",
            headers={
                "Content-Disposition": f'attachment; filename="nsqadmin-series-{question.range}.{form}"',
                "Cache-Control": "no-store",
            },
        )


def read_column(series: Series, name: str, times: NDArray[np.float64]) -> list[float | None]:
    """The values at these times; None if history has none."""
    column = series.columns.get(name)
    if column is None or not len(series.times):
        return [None] * len(times)
    places = np.minimum(np.searchsorted(series.times, times), len(series.times) - 1)
    values = np.where(series.times[places] == times, column[places].astype(np.float64), np.nan)
    return [None if math.isnan(value) else value for value in values.round(DECIMALS).tolist()]


def make_rows(
    question: Question, answer: dict[str, Any]
) -> tuple[list[str], list[list[str | float | None]]]:
    """A row per point: its time, then each column of each key."""
    names, columns = ["time"], []
    for key, series in zip(question.keys, answer["series"], strict=True):
        for name in question.columns:
            names.append("/".join((*key[1:], name)))
            columns.append(series[name])
    rows = [
        [format_time(at), *values] for at, *values in zip(answer["times"], *columns, strict=True)
    ]
    return names, rows


def format_time(at: float) -> str:
    """ISO 8601; with milliseconds only for the last point, whose step is not over yet."""
    moment = datetime.fromtimestamp(round(at, 3), UTC)
    precision = "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def to_csv(names: Sequence[str], rows: Sequence[Sequence[str | float | None]]) -> str:
    """RFC 4180; an unknown value is an empty field, and no name can be mistaken for a formula."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([quote_formula(name) for name in names])
    writer.writerows(rows)
    return text.getvalue()


def to_json(names: Sequence[str], rows: Sequence[Sequence[str | float | None]]) -> str:
    """A list of objects."""
    return json.dumps([dict(zip(names, row, strict=True)) for row in rows], ensure_ascii=False)


def add_routes(app: web.Application, context: Context) -> None:
    """/ui/series"""
    app.router.add_get("/ui/series", SeriesHandler(context).serve)
