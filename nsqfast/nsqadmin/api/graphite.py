"""Graphite: the rate of a metric for scripts, and its pictures through nsqadmin with --proxy-graphite."""

import logging
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.api.answers import answer, query_of
from nsqfast.nsqadmin.cluster.answers import UpstreamError
from nsqfast.nsqadmin.context import Context
from nsqfast.wire.gotext import quote

log = logging.getLogger("nsqadmin")

SECOND_NS = 1_000_000_000
PASSED_HEADERS = ("Content-Type", "Cache-Control", "Expires", "Last-Modified", "ETag", "Pragma")


class _Series(msgspec.Struct):
    datapoints: list[list[float | None]]


class Graphite:
    def __init__(self, context: Context) -> None:
        options = context.options
        self._upstream = context.upstream
        self._url = options.graphite_url.rstrip("/")
        self._interval_s = max(1, options.statsd_interval_ns // SECOND_NS)

    async def rate(self, request: web.Request) -> web.Response:
        """The rate of `target` per second; N/A if Graphite has no number, or a negative one."""
        query = query_of(request)
        if query.get("metric") != "rate":
            raise web.HTTPBadRequest(text="INVALID_ARG_METRIC")
        if "target" not in query:
            raise web.HTTPBadRequest(text="INVALID_ARG_TARGET")
        asked = {
            "format": "json",
            "from": f"-{2 * self._interval_s}sec",
            "target": query["target"],
            "until": f"-{self._interval_s}sec",
        }
        number = await self._first_number(f"{self._url}/render?{urlencode(asked)}")
        is_known = number is not None and number >= 0
        return answer({"rate": f"{(number or 0) / self._interval_s:.2f}" if is_known else "N/A"})

    async def _first_number(self, url: str) -> float | None:
        try:
            body = await self._upstream.get_url(url)
            series = msgspec.json.decode(body, type=list[_Series])
        except (UpstreamError, ValueError, RecursionError) as error:
            log.error("graphite request failed - %s", error)  # noqa: TRY400 - its text says all
            raise web.HTTPInternalServerError(text="INTERNAL_ERROR") from None
        points = series[0].datapoints if series else []
        return points[0][0] if points and points[0] else None

    async def render(self, request: web.Request) -> web.Response:
        """The answer of Graphite's /render to the same query."""
        query = request.raw_path.partition("?")[2]
        url = f"{self._url}/render?{query}"
        try:
            given = await self._upstream.get_whole(url, {"Host": request.host})
        except UpstreamError as error:
            log.error("graphite request failed - %s", error)  # noqa: TRY400 - its text says all
            return web.Response(status=502, text="Graphite did not answer.")
        headers = {name.decode(): value.decode("latin-1") for name, value in given.headers.items()}
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if not kind.startswith("image/") and kind != "application/json":
            # A page or a script of Graphite's, or of whoever answers there, would be one of ours to browsers.
            log.error(
                "graphite request failed - %s is neither an image nor JSON", quote(kind[:100])
            )
            return web.Response(
                status=502, text="Graphite answered with neither an image nor JSON."
            )
        passed = {name: headers[name.lower()] for name in PASSED_HEADERS if name.lower() in headers}
        return web.Response(status=given.status, body=given.body, headers=passed)
