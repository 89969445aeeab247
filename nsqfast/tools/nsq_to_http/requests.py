"""Requests to destinations, and the redirects that answer them, which are followed as Go's HTTP client does."""

import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urljoin

from nsqfast.errors import NsqfastError
from nsqfast.net.http_client import (
    Answer,
    BrokenError,
    ClientLimits,
    EndedError,
    HttpClient,
    UnreachableError,
)
from nsqfast.net.http_target import Target, parse_target
from nsqfast.tools.nsq_to_http.target import Head
from nsqfast.wire.gotext import os_error

# Most bytes read of one answer, including its head: the same as Go's limit for a head. The body does not matter.
ANSWER_SIZE_MAX = 1024 * 1024
TLS_TIMEOUT_S = 10.0  # as in Go
IDLE_TIMEOUT_S = 90.0  # as in Go
COUNT_MAX = 10
REPEATED = frozenset({307, 308})  # keep the method and body
ALL = frozenset({301, 302, 303}) | REPEATED
OF_A_BODY = frozenset({"Content-Type", "Content-Encoding", "Content-Language", "Content-Location"})
SECRET = frozenset({"Authorization", "Www-Authenticate", "Cookie", "Cookie2"})


class RedirectError(NsqfastError):
    """A redirect that is not followed."""


# What `follow` and HttpClient.ask raise; `describe` has their words.
FAILURES = (BrokenError, RedirectError, TimeoutError, UnreachableError)


def make_client(connect_timeout_s: float, request_timeout_s: float) -> HttpClient:
    """0 seconds = wait for ever."""
    return HttpClient(
        ClientLimits(
            connect_timeout_s,
            request_timeout_s,
            IDLE_TIMEOUT_S,
            TLS_TIMEOUT_S,
            head_size_max=ANSWER_SIZE_MAX,
        )
    )


def describe(error: Exception) -> str:
    """Why a request got no answer."""
    if isinstance(error, UnreachableError):
        return f"dial tcp {error.origin.host}:{error.origin.port}: {_dialled(error.cause)}"
    if isinstance(error, EndedError):
        cause = f": {error.cause}" if error.cause else ""
        return f"the connection broke before the answer was there{cause}"
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)


def _dialled(cause: OSError) -> str:
    if isinstance(cause, TimeoutError):
        return "timeout"
    return str(cause) if isinstance(cause, ssl.SSLError) else os_error(cause)


class Request(NamedTuple):
    """An answered request; `body` is None if there was none."""

    target: Target
    headers: Mapping[str, str]
    body: bytes | None


async def follow(client: HttpClient, request: Request, answer: Answer, deadline_s: float) -> Answer:
    """Follow redirects to the first other answer."""
    first = request.target
    for _ in range(COUNT_MAX):
        if answer.status not in ALL or not answer.headers.get(b"location"):
            return answer
        request = redirect(first, request, answer)
        head = Head("GET" if request.body is None else "POST", request.target, request.headers)
        body, path = request.body, request.target.path
        data = head.with_path(path.encode()) if body is None else head.with_body(body)
        answer = await client.ask(request.target.origin, data, None, deadline_s)
    raise RedirectError(f"stopped after {COUNT_MAX} redirects")


def redirect(first: Target, request: Request, answer: Answer) -> Request:
    """The next request; RedirectError if there can be none. Secrets are not sent to another host."""
    before = request.target
    location = answer.headers[b"location"].decode("utf-8", "replace")
    try:
        target = parse_target(urljoin(before.url, location))
    except ValueError as error:
        raise RedirectError(f"redirected to {location[:100]!r}: {error}") from None
    headers = dict(request.headers)
    headers.pop("Referer", None)
    if before.origin.is_tls <= target.origin.is_tls:
        headers["Referer"] = before.url
    body = request.body if answer.status in REPEATED else None
    dropped = frozenset[str]() if body is not None else OF_A_BODY
    host, own = target.origin.host, first.origin.host
    if host != own and not host.endswith("." + own):
        dropped |= SECRET
    return Request(target, {name: headers[name] for name in headers.keys() - dropped}, body)
