"""nsqd's HTTP API: the route table, and what happens around every handler."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from nsqfast.gotext import format_duration
from nsqfast.net.http_message import HTML, Request, Response
from nsqfast.net.router import Router
from nsqfast.nsqd import http_debug
from nsqfast.nsqd.http_admin import Admin
from nsqfast.nsqd.http_config import Config
from nsqfast.nsqd.http_metrics import MetricsPage
from nsqfast.nsqd.http_publish import Publisher
from nsqfast.nsqd.http_reply import (
    HttpError,
    error_answer,
    json_answer,
    parameters,
    text_answer,
)
from nsqfast.nsqd.options import TLS_REQUIRED
from nsqfast.nsqd.server import Server
from nsqfast.nsqd.stats import Filter, collect
from nsqfast.nsqd.stats_text import format_stats

if TYPE_CHECKING:  # what it imports would slow down every start
    from nsqfast.nsqd.http_auth import HttpGuard

log = logging.getLogger("nsqd")

Answer = Response | Awaitable[Response]
NOT_FOUND = error_answer(404, "NOT_FOUND")
INTERNAL_ERROR = error_answer(500, "INTERNAL_ERROR")
_SWITCH = {"true": True, "1": True, "false": False, "0": False}
FORM_SIZE_MAX = 64 * 1024  # /debug/setblockrate


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint."""

    run: Callable[[Request], Answer]
    body_size_max: int = 0  # 0 = a body is read and dropped
    is_logged: bool = True
    # What --http-auth-required wants for it: "topic" to publish to the one named, "channel" to subscribe to the one
    # named, "everything" where the whole broker is concerned; "" = nothing.
    need: str = ""


class HttpApi:
    """A Handler (see nsqfast.net.http_server) for one broker."""

    def __init__(self, server: Server, is_plain: bool = True) -> None:
        self._server = server
        publisher = Publisher(server.registry, server.options)
        self._router = _routes(server, publisher, self._stats)
        self._refuses_plain = is_plain and server.options.tls_required == TLS_REQUIRED
        self._guard = _guard(server, is_plain)
        closes = self._refuses_plain or self._guard is not None
        self.shortcut = None if closes else publisher.shortcut()

    def limit(self, method: str, path: str) -> int:
        """Body size by route."""
        route = self._router.find(method, path)
        return route.body_size_max if route is not None else 0

    def __call__(self, request: Request) -> Answer:
        if self._refuses_plain:
            return self._refuse_plain()
        route = self._router.find(request.method, request.path)
        if route is None:
            return self._answer_strays(request)
        begun_ns = time.perf_counter_ns() if route.is_logged else 0
        if self._guard is not None and route.need:
            refusal = self._guard.check(request, route.need)
            if refusal is not None and not isinstance(refusal, Response):
                return _run_later(route, request, refusal, begun_ns)
        else:
            refusal = None
        answer = refusal or _run(route, request)
        if begun_ns and isinstance(
            answer, Response
        ):  # the handlers that wait are those that are not logged
            _log_access(request, answer, begun_ns)
        return answer

    def _refuse_plain(self) -> Response:
        address = self._server.https_address
        port = address[1] if isinstance(address, tuple) else 0
        body = b'{"message": "TLS_REQUIRED", "https_port": %d}' % port
        answer = error_answer(403, "")
        answer.body = body
        return answer

    def _answer_strays(self, request: Request) -> Response:
        """No route: another spelling, another method, or nothing at all."""
        method, path = request.method, request.path
        if method == "OPTIONS" and path == "*":
            return Response(200)
        allowed = self._router.allowed(path)
        if method == "OPTIONS" and allowed:
            return Response(200, headers=b"Allow: %b\r\n" % allowed.encode())
        begun_ns = time.perf_counter_ns()
        if not allowed:
            corrected = self._router.correct(method, path)
            if corrected is not None:
                return _redirect(request, corrected)
            answer = NOT_FOUND
        else:
            allow = b"Allow: %b\r\n" % allowed.encode()
            answer = error_answer(405, "METHOD_NOT_ALLOWED", allow)
        _log_access(request, answer, begun_ns)
        return answer

    def _stats(self, request: Request) -> Response:
        values = parameters(request)
        wanted = Filter(
            topic=values.get("topic", ""),
            channel=values.get("channel", ""),
            with_clients=_SWITCH.get(values.get("include_clients", ""), True),
            with_memory=_SWITCH.get(values.get("include_mem", ""), True),
        )
        found = collect(self._server.registry, self._server.start_time, wanted)
        if values.get("format") == "json":
            return json_answer(found)
        return text_answer(format_stats(found, self._server.start_time))


def _routes(
    server: Server, publisher: Publisher, stats: Callable[[Request], Response]
) -> Router[Route]:
    options = server.options
    admin = Admin(server)
    config = Config(options, server.lookup.configure)
    router: Router[Route] = Router()
    for method, pattern, route in (
        ("POST", "/pub", Route(publisher.pub, options.max_msg_size, is_logged=False, need="topic")),
        (
            "POST",
            "/mpub",
            Route(publisher.mpub, options.max_body_size, is_logged=False, need="topic"),
        ),
        ("GET", "/ping", Route(admin.ping)),
        ("GET", "/info", Route(admin.info)),
        ("GET", "/stats", Route(stats)),
        ("GET", "/metrics", Route(MetricsPage(server).get, is_logged=False)),
        ("POST", "/topic/create", Route(admin.create_topic, need="topic")),
        ("POST", "/topic/delete", Route(admin.delete_topic, need="topic")),
        ("POST", "/topic/empty", Route(admin.empty_topic, need="topic")),
        ("POST", "/topic/pause", Route(admin.pause_topic, need="topic")),
        ("POST", "/topic/unpause", Route(admin.unpause_topic, need="topic")),
        ("POST", "/channel/create", Route(admin.create_channel, need="channel")),
        ("POST", "/channel/delete", Route(admin.delete_channel, need="channel")),
        ("POST", "/channel/empty", Route(admin.empty_channel, need="channel")),
        ("POST", "/channel/pause", Route(admin.pause_channel, need="channel")),
        ("POST", "/channel/unpause", Route(admin.unpause_channel, need="channel")),
        ("GET", "/config/:opt", Route(config.get, need="everything")),
        ("PUT", "/config/:opt", Route(config.put, options.max_msg_size, need="everything")),
        ("GET", "/debug/pprof/", Route(http_debug.index, need="everything")),
        ("GET", "/debug/pprof/cmdline", Route(http_debug.cmdline, need="everything")),
        ("GET", "/debug/pprof/goroutine", Route(http_debug.stacks, need="everything")),
        ("GET", "/debug/pprof/heap", Route(http_debug.heap, need="everything")),
        (
            "PUT",
            "/debug/setblockrate",
            Route(http_debug.set_block_rate, FORM_SIZE_MAX, need="everything"),
        ),
        ("POST", "/debug/freememory", Route(http_debug.free_memory, need="everything")),
    ):
        router.add(method, pattern, route)
    return router


def _guard(server: Server, is_plain: bool) -> "HttpGuard | None":
    if not server.options.http_auth_required:
        return None
    assert server.auth is not None, "validate() wants an auth server"
    from nsqfast.nsqd.http_auth import HttpGuard

    return HttpGuard(server.auth, is_tls=not is_plain)


async def _run_later(
    route: Route, request: Request, refused: Awaitable[Response | None], begun_ns: int
) -> Response:
    """Once an auth server has said who asks."""
    answer = await refused or _run(route, request)
    if not isinstance(answer, Response):
        answer = await answer
    if begun_ns:
        _log_access(request, answer, begun_ns)
    return answer


def _run(route: Route, request: Request) -> Answer:
    try:
        return route.run(request)
    except HttpError as error:
        return error_answer(error.status, error.code)
    except Exception:
        log.exception("HTTP: %s %s failed", request.method, _shown(request.target))
        return INTERNAL_ERROR


def _redirect(request: Request, path: str) -> Response:
    query = "?" + request.query.decode("latin-1") if request.query else ""
    target = path + query
    location = b"Location: %b\r\n" % target.encode("latin-1", "replace")
    if request.method != "GET":
        return Response(307, headers=location)
    shown = escape(target).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")  # as Go escapes
    body = f'<a href="{shown}">Moved Permanently</a>.\n\n'
    return Response(301, body.encode(), HTML, location)


def _log_access(request: Request, answer: Response, begun_ns: int) -> None:
    if log.isEnabledFor(logging.INFO):
        log.info(
            "%d %s %s (%s) %s",
            answer.status,
            request.method,
            _shown(request.target),
            request.remote,
            format_duration(time.perf_counter_ns() - begun_ns),
        )


def _shown(target: bytes) -> str:
    return target.decode("latin-1")
