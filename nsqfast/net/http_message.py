"""One HTTP request and one answer, and the answer's form on the wire.

Both are plain records that connect the code that reads sockets with the code that knows the routes.
"""

import re
import time
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_to_bytes

if TYPE_CHECKING:
    from nsqfast._ext.core.log_quota import LogQuota
    from nsqfast._ext.core.usage import Usage
    from nsqfast._ext.protocol.body import Body

TEXT = "text/plain; charset=utf-8"
JSON = "application/json; charset=utf-8"
HTML = "text/html; charset=utf-8"

# Kinds of wrong body sizes, in Request.oversize.
FITS = 0
DECLARED = 1  # Content-Length exceeds the route's limit; nothing of the body was read
ACTUAL = 2  # a chunked body exceeded it; the part that came was dropped

# How often this process has answered, by route and status: http_requests_total of /metrics, which has itself from the
# start. The names are those of our own routes alone, so that nobody can make more of them.
OTHER = "other"
ANSWERED: Counter[tuple[str, int]] = Counter({("/metrics", 200): 0})

# Longer targets and queries are parsed anew each time, so that a peer cannot fill the caches with them.
_CACHED_SIZE_MAX = 256

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")

_STATUS_LINES = {
    version: {
        status.value: f"HTTP/{version} {status.value} {status.phrase}\r\n".encode()
        for status in HTTPStatus
    }
    for version in ("1.0", "1.1")
}
# NSQ's HTTP library uses an older name for this status than Python.
for _version, _lines in _STATUS_LINES.items():
    _lines[413] = f"HTTP/{_version} 413 Request Entity Too Large\r\n".encode()


class Request:
    """The input of a handler; `target` is the request line's middle word, unchanged."""

    __slots__ = (
        "body",
        "close",
        "headers",
        "is_http10",
        "lines",
        "method",
        "oversize",
        "path",
        "query",
        "remote",
        "response",
        "route",
        "target",
        "usage",
    )

    def __init__(self, method: str, target: bytes, remote: str) -> None:
        self.method = method
        self.target = target
        if len(target) <= _CACHED_SIZE_MAX:
            self.path, self.query = _split_cached(target)
        else:
            self.path, self.query = split_target(target)
        self.body: bytes | Body = b""  # a Body: it came in pieces
        self.headers: dict[bytes, bytes] = {}  # names in lower case
        self.remote = remote
        self.response: Response | None = None  # once it is known, and waits for those before it
        self.route = OTHER  # under which it is counted
        self.lines: LogQuota | None = None  # quota of log lines, for its connection
        self.oversize = FITS
        self.is_http10 = False
        self.close = False  # the connection ends with this answer
        self.usage: Usage | None = None  # of the identity that asks; None = it has no limits

    def admit_line(self) -> str | None:
        """The suffix of a log line about this request; None = log nothing, there were too many."""
        return "" if self.lines is None else self.lines.admit()


class Response:
    """The result of a handler; `headers` are whole lines, each with its CRLF. A long body continues in `pieces`."""

    __slots__ = ("body", "close", "content_type", "headers", "pieces", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        content_type: str = "",
        headers: bytes = b"",
        close: bool = False,
        pieces: Sequence[bytes] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.pieces = pieces
        self.content_type = content_type
        self.headers = headers
        self.close = close


def split_target(target: bytes) -> tuple[str, bytes]:
    """Path (unescaped) and query (unchanged); ValueError if the path's escapes are broken.

    Both origin form (/pub?topic=t) and absolute form (http://host/pub?topic=t) are understood. A `#` is
    an ordinary character: `topic=t#ephemeral` reaches a broker unescaped from many clients.
    """
    path, _, query = target.partition(b"?")
    if path[:1] != b"/" and b"://" in path:
        path = b"/" + path.split(b"://", 1)[1].partition(b"/")[2]
    if b"%" in path:
        check_escapes(path)
        return unquote(path.decode("latin-1"), errors="surrogateescape"), query
    return path.decode("latin-1"), query


_split_cached = lru_cache(maxsize=1024)(split_target)


def parse_query(query: bytes) -> dict[str, str]:
    """The first value of each key; ValueError, as in NSQ, on a broken escape or a `;` anywhere, in any key.

    The dict may be shared between requests: do not change it.
    """
    if len(query) <= _CACHED_SIZE_MAX:
        return _parse_query_cached(query)
    return _parse_query(query)


def _parse_query(query: bytes) -> dict[str, str]:
    values: dict[str, str] = {}
    if b";" in query:
        raise ValueError("invalid semicolon separator in query")
    for pair in query.split(b"&"):
        if pair:
            key, _, value = pair.partition(b"=")
            values.setdefault(_unescape(key), _unescape(value))
    return values


_parse_query_cached = lru_cache(maxsize=1024)(_parse_query)


def _unescape(text: bytes) -> str:
    if b"%" in text:
        check_escapes(text)
        text = unquote_to_bytes(text.replace(b"+", b" "))
    elif b"+" in text:
        text = text.replace(b"+", b" ")
    return text.decode("utf-8", "surrogateescape")


def check_escapes(text: bytes) -> None:
    """Raise ValueError unless two hex digits follow every %."""
    if _BROKEN_ESCAPE.search(text):
        raise ValueError("invalid URL escape")


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_date = b""
_date_second = 0


def _current_date() -> bytes:
    global _date, _date_second  # noqa: PLW0603 - one line made once a second, not once an answer
    second = int(time.time())
    if second != _date_second:
        _date_second = second
        at = time.gmtime(second)
        day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]  # in English, whatever the locale
        _date = time.strftime(f"{day}, %d {month} %Y %H:%M:%S GMT", at).encode()
    return _date


@lru_cache(maxsize=64)
def _last_headers(content_type: str, connection: str) -> bytes:
    lines = f"Content-Type: {content_type}\r\n" if content_type else ""
    if connection:
        lines += f"Connection: {connection}\r\n"
    return lines.encode() + b"\r\n"


def render(request: Request, response: Response) -> bytes:
    """The answer's bytes without its pieces; for HEAD, with Content-Length but without the body."""
    body = response.body
    size = len(body) + sum(map(len, response.pieces)) if response.pieces else len(body)
    if request.is_http10:
        status_line = _STATUS_LINES["1.0"][response.status]
        connection = "" if request.close else "keep-alive"
    else:
        status_line = _STATUS_LINES["1.1"][response.status]
        connection = "close" if request.close else ""
    return b"%b%bDate: %b\r\nContent-Length: %d\r\n%b%b" % (
        status_line,
        response.headers,
        _current_date(),
        size,
        _last_headers(response.content_type, connection),
        b"" if request.method == "HEAD" else body,
    )
