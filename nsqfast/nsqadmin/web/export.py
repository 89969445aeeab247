"""Files of charts and tables; GET /ui/export has a table as its page sorts it. docs/ADMIN.md describes both forms.

In CSV numbers are plain, and an unknown value is an empty field; JSON is a list of objects.
"""

import asyncio
import csv
import io
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import urlsplit

from aiohttp import web

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.context import context_of
from nsqfast.nsqadmin.web.tables import Value
from nsqfast.nsqadmin.web.view import MadeView

FORMULA = ("=", "+", "-", "@", "\t", "\r")

ViewAt = Callable[[web.Request, str], Awaitable[MadeView]]


async def export_table(view_at: ViewAt, request: web.Request) -> web.Response:
    """Serve /ui/export; `view_at` finds the View of an address, LookupError if there is none."""
    view, name = request.query.get("view", ""), request.query.get("table", "")
    form = read_form(request)
    try:
        table = (await view_at(request, view)).view.tables[name]
    except LookupError:
        raise web.HTTPNotFound(text="there is no such table") from None
    columns = [column for column in table.spec.columns if column.spark is None]
    rows, slices = [], Slices()
    for item in table.matched:
        rows.append([column.value(item) for column in columns])
        await slices.pause()
    place = re.sub(r"[^\w.-]+", "-", context_of(request).urls.below(urlsplit(view).path) or "")
    file_name = f"nsqadmin{place if place != '-' else ''}-{name}"
    target = {"view": view, "table": name}
    return await answer_file(request, form, file_name, target, [each.key for each in columns], rows)


def read_form(request: web.Request) -> str:
    """The form that the address asks for; 400 if there is none like it."""
    form = request.query.get("format", "csv")
    if form not in ("csv", "json"):
        raise web.HTTPBadRequest(text="format is csv or json")
    return form


async def answer_file(
    request: web.Request,
    form: str,
    name: str,
    target: Mapping[str, str],
    keys: Sequence[str],
    rows: Sequence[Sequence[Value]],
) -> web.Response:
    """A file for the browser to keep, which is audited; it is written in a thread."""
    body = await asyncio.to_thread(to_csv if form == "csv" else to_json, keys, rows)
    effect = {"format": form, "rows": len(rows)}
    await context_of(request).audit.note(request, "export", target, effect=effect)
    return web.Response(
        body=body.encode("utf-8", "replace"),
        content_type="text/csv" if form == "csv" else "application/json",
        charset="utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.{form}"'},
    )


def to_csv(keys: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(map(quote_formula, keys))
    writer.writerows([quote_formula(value) for value in row] for row in rows)
    return text.getvalue()


def quote_formula(value: Value) -> Value:
    """Make text that begins like a formula plain text for a spreadsheet."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return "'" + value
    return value


def to_json(keys: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    return json.dumps([dict(zip(keys, row, strict=True)) for row in rows], ensure_ascii=False)
