"""GET /ui/series?key=K&columns=A,B&range=1h: the points of charts, as JSON for the page or as an export.

    key      once per series: empty for the whole cluster, `topic/T`, `channel/T/C`, `node/HOST:PORT`, parts quoted
    columns  names of charts.plan.COLUMNS
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
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
from aiohttp import web
from multidict import MultiMapping
from numpy.typing import NDArray

from nsqfast.nsqadmin.access.permissions import export_only
from nsqfast.nsqadmin.charts.plan import COLUMNS, RANGE_DEFAULT, RANGES, format_key, parse_key
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.live.series import CHANNEL_COLUMNS, Key, Series
from nsqfast.nsqadmin.web.export import quote_formula

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
