"""Answers of the JSON API: headers, errors and warnings as in nsqadmin."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from nsqfast.net.http_message import parse_query
from nsqfast.nsqadmin.cluster.answers import NobodyAnsweredError
from nsqfast.nsqadmin.results import Result
from nsqfast.wire.gotext import quote

log = logging.getLogger("nsqadmin")

V1 = {"X-NSQ-Content-Type": "nsq; version=1.0"}
JSON = {"Content-Type": "application/json; charset=utf-8", **V1}

BROKEN_ESCAPE = re.compile("%(?![0-9a-fA-F]{2}).{0,2}")

Ask = Callable[[web.Request], Awaitable[web.Response]]


class ApiError(Exception):
    """The request cannot be served: `{"message": text}` with this status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def answer(value: Any) -> web.Response:
    """Answer with JSON."""
    return answer_bytes(orjson.dumps(value))


def answer_bytes(body: bytes) -> web.Response:
    """Answer with bytes that are JSON already."""
    return web.Response(body=body, headers=JSON)


def refusal(status: int, text: str) -> web.Response:
    """An error."""
    return web.Response(status=status, body=orjson.dumps({"message": text}), headers=JSON)


def warn(*steps: Iterable[Result]) -> str:
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
        raise ApiError(400, f"{error} {quote(broken[0])}" if broken else str(error)) from None


def as_api(ask: Ask) -> Handler:
    """A handler whose errors are JSON; the server logs the request."""

    async def handle(request: web.Request) -> web.Response:
        try:
            return await ask(request)
        except ApiError as error:
            return refusal(error.status, str(error))
        except NobodyAnsweredError as error:
            log.error("%s", error)  # noqa: TRY400 - a node's fault: its text says all
            return refusal(502, f"UPSTREAM_ERROR: {error}")

    return handle
