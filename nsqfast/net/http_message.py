"""One HTTP request and one answer, and how the answer looks on the wire.

Both are plain records: who reads sockets and who knows the routes meet here.
"""

import re
import time
from collections.abc import Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from nsqfast._ext.core.log_quota import LogQuota

TEXT = "text/plain; charset=utf-8"
JSON = "application/json; charset=utf-8"
HTML = "text/html; charset=utf-8"

# Body sizes found wrong, in Request.oversize.
FITS = 0
DECLARED = 1  # Content-Length says more than the route takes; nothing of the body was read
ACTUAL = 2  # a chunked body grew past it; what came so far was dropped

# Longer targets are split anew each time: the cache must not become the place where a peer parks memory.
_CACHED_TARGET_SIZE_MAX = 256

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")

_STATUS_LINES = {
    version: {
        status.value: f"HTTP/{version} {status.value} {status.phrase}\r\n".encode()
        for status in HTTPStatus
    }
    for version in ("1.0", "1.1")
}
# The name of this status is older in NSQ's HTTP library than in Python's.
for _version, _lines in _STATUS_LINES.items():
    _lines[413] = f"HTTP/{_version} 413 Request Entity Too Large\r\n".encode()


class Request:
    """What a handler is given; `target` is the request line's middle word, untouched."""

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
        "target",
    )

    def __init__(self, method: str, target: bytes, remote: str) -> None:
        self.method = method
        self.target = target
        if len(target) <= _CACHED_TARGET_SIZE_MAX:
            self.path, self.query = _split_cached(target)
        else:
            self.path, self.query = split_target(target)
        self.body = b""
        self.headers: dict[bytes, bytes] = {}  # names in lower case
        self.remote = remote
        self.lines: LogQuota | None = None  # of the log, for its connection
        self.oversize = FITS
        self.is_http10 = False
        self.close = False  # the connection ends with this answer

    def admit_line(self) -> str | None:
        """What stands behind a line of the log about this request; None = no line, there were too many."""
        return "" if self.lines is None else self.lines.admit()


class Response:
    """What a handler gives back; `headers` are whole lines, each with its CRLF. A long body goes on in `pieces`."""

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
    """Path (unescaped) and query (as it came); ValueError if the path's escapes are broken.

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


def check_escapes(text: bytes) -> None:
    """Raises ValueError unless every % has two hex digits behind it."""
    if _BROKEN_ESCAPE.search(text):
        raise ValueError("invalid URL escape")


_date = b""
_date_second = 0


def _current_date() -> bytes:
    global _date, _date_second  # noqa: PLW0603 - one line made once a second, not once an answer
    second = int(time.time())
    if second != _date_second:
        _date_second = second
        _date = formatdate(second, usegmt=True).encode()
    return _date


@lru_cache(maxsize=64)
def _last_headers(content_type: str, connection: str) -> bytes:
    lines = f"Content-Type: {content_type}\r\n" if content_type else ""
    if connection:
        lines += f"Connection: {connection}\r\n"
    return lines.encode() + b"\r\n"


def render(request: Request, response: Response) -> bytes:
    """The answer's bytes without its pieces; a HEAD answer keeps its Content-Length and loses its body."""
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
