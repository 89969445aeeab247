"""Answers of the JSON API: headers, errors, warnings and compression as in nsqadmin.

Unknown paths and methods get nsqadmin's answers, too, unless a browser asks: it gets the pages' own. Of gzip and
deflate the first known one in Accept-Encoding is used, whatever its q; deflate is the bare stream without zlib's
header, as in Go. Pages are not compressed: they hold a secret beside text from the address, and the length of a
compressed page would leak it (https://breachattack.com/).
"""

import asyncio
import logging
import re
import zlib
from collections.abc import Iterable
from typing import Any

import orjson
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from nsqfast.net.http_message import parse_query
from nsqfast.nsqadmin.access.answers import JSON, own_path, refusal
from nsqfast.nsqadmin.cluster.answers import NobodyAnsweredError
from nsqfast.nsqadmin.results import Result
from nsqfast.wire.gotext import quote

log = logging.getLogger("nsqadmin")

BROKEN_ESCAPE = re.compile("%(?![0-9a-fA-F]{2}).{0,2}")

WINDOW_BITS = {"gzip": 31, "deflate": -15}
THREAD_SIZE_MIN = 64 << 10  # about 2 ms
OURS = ("/api/", "/config/", "/ping/", "/render/")


def answer(value: Any) -> web.Response:
    return answer_bytes(orjson.dumps(value))


def answer_bytes(body: bytes) -> web.Response:
    return web.Response(body=body, headers=JSON)


def join_warnings(*steps: Iterable[Result]) -> str:
    """The message of an answer: failures of one step are lines, steps are separated by semicolons; '' for none."""
    texts = ["\n".join(one.text for one in step if not one.ok) for step in steps]
    given = [text for text in texts if text]
    for text in given:
        log.warning("%s", text)
    return "WARNING: " + "; ".join(given) if given else ""


def query_of(request: web.Request) -> dict[str, str]:
    """The first value of each parameter; an unreadable query is the client's fault."""
    query = request.raw_path.partition("?")[2]
    try:
        return parse_query(query.encode("utf-8", "surrogateescape"))
    except ValueError as error:
        broken = BROKEN_ESCAPE.search(query)
        text = f"{error} {quote(broken[0])}" if broken else str(error)
        raise web.HTTPBadRequest(text=text) from None


def as_api(ask: Handler) -> Handler:
    """A handler whose errors are JSON; the server logs the request."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await ask(request)
        except web.HTTPException as error:
            return refusal(error.status, error.text or "")
        except NobodyAnsweredError as error:
            log.error("%s", error)  # noqa: TRY400 - a node's fault: its text says all
            return refusal(502, f"UPSTREAM_ERROR: {error}")

    return handle


@web.middleware
async def compress(request: web.Request, handler: Handler) -> web.StreamResponse:
    """For complete answers that are not compressed yet."""
    response = await handler(request)
    encoding = chosen_encoding(request.headers.getall("Accept-Encoding", ()))
    if (
        not encoding
        or not isinstance(response, web.Response)
        or not isinstance(response.body, bytes)
        or not response.body
        or "Content-Encoding" in response.headers
        or response.content_type == "text/html"
    ):
        return response
    if len(response.body) < THREAD_SIZE_MIN:
        response.body = _compress(response.body, encoding)
    else:
        response.body = await asyncio.to_thread(_compress, response.body, encoding)
    response.headers["Content-Encoding"] = encoding
    response.headers.add("Vary", "Accept-Encoding")
    return response


def chosen_encoding(headers: tuple[str, ...] | list[str]) -> str:
    """'' for none. As in Go, only the first header counts."""
    for word in headers[0].split(",") if headers else ():
        if word.strip() in WINDOW_BITS:
            return word.strip()
    return ""


def _compress(body: bytes, encoding: str) -> bytes:
    packer = zlib.compressobj(wbits=WINDOW_BITS[encoding])
    return packer.compress(body) + packer.flush()


@web.middleware
async def answer_misses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """JSON for 404 and 405, a redirect for a superfluous slash, the methods for OPTIONS."""
    miss = request.match_info.http_exception
    if miss is None or _is_for_a_browser(request):
        return await handler(request)
    if await _is_known_without_slash(request):
        status = 301 if request.method == hdrs.METH_GET else 308
        path, _, query = request.raw_path.partition("?")
        target = path.rstrip("/") + ("?" + query if query else "")
        return web.Response(status=status, headers={"Location": target})
    if not isinstance(miss, web.HTTPMethodNotAllowed):
        return refusal(404, "NOT_FOUND")
    allowed = ", ".join(sorted([*miss.allowed_methods, "OPTIONS"]))
    if request.method == hdrs.METH_OPTIONS:
        return web.Response(headers={"Allow": allowed})
    response = refusal(405, "METHOD_NOT_ALLOWED")
    response.headers["Allow"] = allowed
    return response


def _is_for_a_browser(request: web.Request) -> bool:
    is_ours = (own_path(request) + "/").startswith(OURS)
    return "text/html" in request.headers.get("Accept", "") and not is_ours


async def _is_known_without_slash(request: web.Request) -> bool:
    path = request.rel_url.raw_path
    if not path.endswith("/") or path == "/" or path.startswith("//"):
        return False
    shorter = request.clone(rel_url=request.rel_url.with_path(path.rstrip("/"), encoded=True))
    return (await request.app.router.resolve(shorter)).http_exception is None
