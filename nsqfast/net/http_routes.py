"""What the HTTP APIs of all daemons share: routes and redirects, the log of requests, long answers, /metrics.

A pattern is a path, or a path whose last part is `:name` and matches any one non-empty word. As in NSQ's router, a path
that differs from a route only by case, a trailing or doubled slash, or dots is answered with a redirect to the right
spelling.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote

from nsqfast._ext.core.budget import Part
from nsqfast.net.http_message import HTML, Request, Response
from nsqfast.net.http_reply import HttpError, error_answer
from nsqfast.wire.gotext import format_duration

T = TypeVar("T")
S = TypeVar("S")


@dataclass(slots=True)
class Router(Generic[T]):
    """Routes by path, then by method."""

    exact: dict[str, dict[str, T]] = field(default_factory=dict)
    prefixes: dict[str, dict[str, T]] = field(default_factory=dict)  # "/config/" for "/config/:opt"

    def add(self, method: str, pattern: str, target: T) -> None:
        """Register one method of one path."""
        stem, colon, _ = pattern.partition(":")
        table = self.prefixes if colon else self.exact
        table.setdefault(stem, {})[method] = target

    def find(self, method: str, path: str) -> T | None:
        """The target, or None."""
        return self._methods(path).get(method)

    def _methods(self, path: str) -> dict[str, T]:
        methods = self.exact.get(path)
        if methods is not None:
            return methods
        stem, slash, word = path.rpartition("/")
        return self.prefixes.get(stem + slash, {}) if word else {}

    def allowed(self, path: str) -> str:
        """The value of an Allow header; '' if the path is unknown."""
        methods = self._methods(path)
        return ", ".join(sorted([*methods, "OPTIONS"])) if methods else ""

    def correct(self, method: str, path: str) -> str | None:
        """The spelling under which the method has a route, if this path only contains a slip."""
        clean = clean_path(path)
        for candidate in (clean, clean.rstrip("/"), clean.rstrip("/") + "/"):
            found = self._ignoring_case(method, candidate)
            if found is not None and found != path:
                return found
        return None

    def _ignoring_case(self, method: str, path: str) -> str | None:
        folded = path.lower()
        for known, methods in self.exact.items():
            if known.lower() == folded and method in methods:
                return known
        stem, slash, word = path.rpartition("/")
        for known, methods in self.prefixes.items():
            if word and known.lower() == (stem + slash).lower() and method in methods:
                return known + word
        return None


def clean_path(path: str) -> str:
    """The path without doubled slashes, `.` and `..`; a trailing slash stays."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    trailing = "/" if parts and path.endswith("/") else ""
    return "/" + "/".join(parts) + trailing


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
    """The endpoints of one daemon: errors become answers, and requests are logged as NSQ does, in its `log`."""

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


PIECE_UNITS = 64  # of a budget: the clock is read after each piece


class Parts:
    """Long answers of one API. All answers made in one turn of the loop share one part of it, and of the answers that
    take longer one is made at a time.
    """

    def __init__(self) -> None:
        self._line = asyncio.Lock()
        self._part: Part | None = None  # for this turn

    def answer(self, pieces: Iterator[bytes], finish: Callable[[list[bytes]], Response]) -> Answer:
        """Make an answer with `finish` from some long pieces: at once if one part is enough, otherwise later."""
        found: list[bytes] = []
        if not self._line.locked() and self._gather_now(pieces, found):
            return finish(found)
        return self._answer_later(pieces, found, finish)

    def _gather_now(self, pieces: Iterator[bytes], found: list[bytes]) -> bool:
        if self._part is None:
            self._part = Part()
            asyncio.get_running_loop().call_soon(self._end_turn)
        return not self._part.is_spent(0) and _gather(self._part, pieces, found)

    def _end_turn(self) -> None:
        self._part = None

    async def _answer_later(
        self,
        pieces: Iterator[bytes],
        found: list[bytes],
        finish: Callable[[list[bytes]], Response],
    ) -> Response:
        async with self._line:
            is_all = False
            while not is_all:
                await asyncio.sleep(0)
                is_all = _gather(Part(), pieces, found)
            return finish(found)


def _gather(part: Part, pieces: Iterator[bytes], found: list[bytes]) -> bool:
    """Join some of the pieces to one of `found`; returns whether these were the last."""
    some, is_all = [], True
    for piece in pieces:
        some.append(piece)
        if part.is_spent(PIECE_UNITS):
            is_all = False
            break
    found.append(b"".join(some))
    return is_all


class Metrics(Protocol):
    """The figures of one daemon."""

    async def answer(self, accept: str) -> Response:
        """All figures, in the format that the Accept header asks for; may be made in parts."""


class MetricsPage(Generic[S]):
    """GET /metrics. Its modules are loaded on the first request, because most starts should not wait for them.

    `load` imports the code that makes a server's figures, and returns it; it runs in a thread.
    """

    def __init__(self, load: Callable[[], Callable[[S], Metrics]], server: S) -> None:
        self._load = load
        self._server = server
        self._metrics: Metrics | None = None

    async def get(self, request: Request) -> Response:
        """All figures, in the format that the Accept header asks for."""
        if self._metrics is None:
            # Loading it from disk can take long, and the loop has others to serve.
            made = await asyncio.to_thread(self._load)
            self._metrics = self._metrics or made(self._server)
        return await self._metrics.answer(request.headers.get(b"accept", b"").decode("latin-1"))
