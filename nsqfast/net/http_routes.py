"""Common handling around the handlers of every daemon.

It turns errors into answers, answers unknown paths, and logs requests as NSQ does.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote

from nsqfast.net.http_message import HTML, Request, Response
from nsqfast.net.http_reply import HttpError, error_answer
from nsqfast.net.router import Router
from nsqfast.wire.gotext import format_duration

Answer = Response | Awaitable[Response]
NOT_FOUND = error_answer(404, "NOT_FOUND")
INTERNAL_ERROR = error_answer(500, "INTERNAL_ERROR")

_POLLED = {"/stats", "/info", "/nodes", "/topics", "/channels", "/lookup"}
_ESCAPED = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"}
)  # as in Go
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


class Route(Protocol):
    """One endpoint, as far as this module needs it."""

    @property
    def path(self) -> str:
        """The pattern of its paths."""

    @property
    def run(self) -> Callable[[Request], Answer]:
        """Call its handler."""


R = TypeVar("R", bound=Route)


class Routes(Generic[R]):
    """The endpoints of one daemon; `log` is the daemon's."""

    def __init__(self, log: logging.Logger) -> None:
        self.router: Router[R] = Router()
        self._log = log

    def find(self, request: Request) -> R | None:
        """The route, under which the request is counted; None for a stray one."""
        route = self.router.find(request.method, request.path)
        if route is not None:
            request.route = route.path
        return route

    def run(self, route: R, request: Request) -> Answer:
        """The handler's answer, or the answer to its error."""
        try:
            return route.run(request)
        except HttpError as error:
            return error_answer(error.status, error.code, reason=error.reason)
        except Exception:
            if (note := request.admit_line()) is not None:
                shown = _shown(request.target)
                self._log.exception("HTTP: %s %s failed%s", request.method, shown, note)
            return INTERNAL_ERROR

    def answer_stray(self, request: Request) -> Response:
        """Answer a request without a route: another spelling, another method, or nothing at all."""
        method, path = request.method, request.path
        if method == "OPTIONS" and path == "*":
            return Response(200)
        allowed = self.router.allowed(path)
        if method == "OPTIONS" and allowed:
            return Response(200, headers=b"Allow: %b\r\n" % allowed.encode())
        begun_ns = time.perf_counter_ns()
        if not allowed:
            corrected = self.router.correct(method, path)
            if corrected is not None:
                return _redirect(request, corrected)
            answer = NOT_FOUND
        else:
            allow = b"Allow: %b\r\n" % allowed.encode()
            answer = error_answer(405, "METHOD_NOT_ALLOWED", allow)
        self.log_access(request, answer, begun_ns)
        return answer

    def log_answer(self, request: Request, answer: Answer, begun_ns: int) -> Answer:
        """The same answer, which is logged once it is there."""
        if not isinstance(answer, Response):
            return self._log_later(request, answer, begun_ns)
        self.log_access(request, answer, begun_ns)
        return answer

    async def _log_later(
        self, request: Request, waiting: Awaitable[Response], begun_ns: int
    ) -> Response:
        answer = await waiting
        self.log_access(request, answer, begun_ns)
        return answer

    def log_access(self, request: Request, answer: Response, begun_ns: int) -> None:
        """Log one line; `begun_ns` is time.perf_counter_ns() at the arrival of the request."""
        level = logging.DEBUG if _is_poll(request, answer) else logging.INFO
        if self._log.isEnabledFor(level) and (note := request.admit_line()) is not None:
            self._log.log(
                level,
                "%d %s %s (%s) %s%s",
                answer.status,
                request.method,
                _shown(request.target),
                request.remote,
                format_duration(time.perf_counter_ns() - begun_ns),
                note,
            )


def _is_poll(request: Request, answer: Response) -> bool:
    """Whether nsqadmin asks how things are, as it does every few seconds. Who reads messages or settings is a line."""
    is_read = request.method == "GET" and answer.status == 200 and request.path in _POLLED
    return is_read and request.headers.get(b"user-agent") == b"nsqadmin"


def _redirect(request: Request, path: str) -> Response:
    # The path was unescaped: characters that could end a header line, or are not ASCII, are escaped again, as in Go.
    target = quote(path.encode("utf-8", "surrogateescape"), safe="/$&+,:;=@")
    if request.query:
        target += "?" + quote(request.query, safe=_PRINTABLE)
    location = b"Location: %b\r\n" % target.encode("ascii")
    if request.method != "GET":
        return Response(307, headers=location)
    body = f'<a href="{target.translate(_ESCAPED)}">Moved Permanently</a>.\n\n'
    return Response(301, body.encode(), HTML, location)


def _shown(target: bytes) -> str:
    return target.decode("latin-1")
