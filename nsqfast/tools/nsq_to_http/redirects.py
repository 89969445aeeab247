"""Follow redirects as Go's HTTP client does."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urljoin

from nsqfast.tools.nsq_to_http.client import HttpClient
from nsqfast.tools.nsq_to_http.connection import Answer, RequestError
from nsqfast.tools.nsq_to_http.target import Head, Target, parse_target

COUNT_MAX = 10
REPEATED = frozenset({307, 308})  # keep the method and body
ALL = frozenset({301, 302, 303}) | REPEATED
OF_A_BODY = frozenset({"Content-Type", "Content-Encoding", "Content-Language", "Content-Location"})
SECRET = frozenset({"Authorization", "Www-Authenticate", "Cookie", "Cookie2"})


class Request(NamedTuple):
    """An answered request; `body` is None if there was none."""

    target: Target
    headers: Mapping[str, str]
    body: bytes | None


async def follow(client: HttpClient, request: Request, answer: Answer, deadline_s: float) -> Answer:
    """Follow redirects to the first other answer."""
    first = request.target
    for _ in range(COUNT_MAX):
        if answer.status not in ALL or not answer.location:
            return answer
        request = redirect(first, request, answer)
        head = Head("GET" if request.body is None else "POST", request.target, request.headers)
        body, path = request.body, request.target.path
        data = head.with_path(path.encode()) if body is None else head.with_body(body)
        answer = await client.ask(client.pool(request.target.origin), data, deadline_s)
    raise RequestError(f"stopped after {COUNT_MAX} redirects")


def redirect(first: Target, request: Request, answer: Answer) -> Request:
    """The next request; RequestError if there can be none. Secrets are not sent to another host."""
    before = request.target
    location = answer.location.decode("utf-8", "replace")
    try:
        target = parse_target(urljoin(before.url, location))
    except ValueError as error:
        raise RequestError(f"redirected to {location[:100]!r}: {error}") from None
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
