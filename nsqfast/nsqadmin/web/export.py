"""GET /ui/export?view=PATH&table=NAME&format=csv|json: the whole of a table as its page filters and sorts it.

CSV follows RFC 4180 with a header line. A text that a spreadsheet would take for a formula gets an apostrophe in front:
one that begins with = + - @, tab or carriage return. Numbers are plain. JSON is a list of objects.
"""

import asyncio
import csv
import io
import json
import re
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.access.permissions import export_only
from nsqfast.nsqadmin.access.users import user_of
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.web.live import Live
from nsqfast.nsqadmin.web.request import Query
from nsqfast.nsqadmin.web.tables import Table, Value
from nsqfast.nsqadmin.web.view import PageNotFoundError, Views

FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Export:
    """The handler."""

    def __init__(self, context: Context, live: Live, views: Views) -> None:
        self._context = context
        self._live = live
        self._views = views

    def add_routes(self, app: web.Application) -> None:
        """See the module."""
        app.router.add_get("/ui/export", export_only(self.serve))

    async def serve(self, request: web.Request) -> web.Response:
        """See the module."""
        address = urlsplit(request.query.get("view", ""))
        name, form = request.query.get("table", ""), request.query.get("format", "csv")
        if form not in ("csv", "json"):
            raise web.HTTPBadRequest(text="format is csv or json")
        try:
            page, match = await self._live.find_for(request, address.path)
            query = Query.parse(address.query)
            made = await self._views.get(page, match, query, user_of(request).role)
            table = made.view.tables[name]
        except (LookupError, PageNotFoundError):
            raise web.HTTPNotFound(text="there is no such table") from None
        rows = await read_rows(table)
        keys = [column.key for column in columns_of(table)]
        body = await asyncio.to_thread(to_csv if form == "csv" else to_json, keys, rows)
        await self._context.audit.note(
            request,
            "export",
            {"view": request.query["view"], "table": name},
            effect={"format": form, "rows": len(rows)},
            outcome="ok",
        )
        place = re.sub(r"[^\w.-]+", "-", self._context.urls.below(address.path) or "")
        file_name = f"nsqadmin{place if place != '-' else ''}-{name}.{form}"
        return web.Response(
            body=body.encode("utf-8", "replace"),
            content_type="text/csv" if form == "csv" else "application/json",
            charset="utf-8",
            headers={
                "Content-Disposition": f'attachment; filename="{file_name}"',
                "Cache-Control": "no-store",
            },
        )


def columns_of(table: Table[Any]) -> list[Any]:
    """The columns that have a value of their own."""
    return [column for column in table.spec.columns if column.spark is None]


async def read_rows(table: Table[Any]) -> list[list[Value]]:
    """All rows; in slices."""
    columns = columns_of(table)
    rows = []
    slices = Slices()
    for item in table.matched:
        rows.append([column.value(item) for column in columns])
        await slices.pause()
    return rows


def to_csv(keys: list[str], rows: list[list[Value]]) -> str:
    """See the module."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(keys)
    writer.writerows([quote_formula(value) for value in row] for row in rows)
    return text.getvalue()


def quote_formula(value: Value) -> Value:
    """Make text that begins like a formula plain text for a spreadsheet."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return "'" + value
    return value


def to_json(keys: list[str], rows: list[list[Value]]) -> str:
    """See the module."""
    return json.dumps([dict(zip(keys, row, strict=True)) for row in rows], ensure_ascii=False)
