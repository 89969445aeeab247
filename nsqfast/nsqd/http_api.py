"""nsqd's HTTP API: the route table, and the common handling around every handler."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from nsqfast.net.browsers import BrowserRules
from nsqfast.net.http_message import JSON, TEXT, Request, Response
from nsqfast.net.http_reply import SWITCH, VERSION_HEADER, error_answer, parameters
from nsqfast.net.http_routes import Answer, MetricsPage, Parts, Routes
from nsqfast.nsqd import http_policies
from nsqfast.nsqd.broker import Broker
from nsqfast.nsqd.http_admin import (
    Admin,
    Config,
    DrainPages,
    debug_cmdline,
    debug_heap,
    debug_index,
    debug_stacks,
    set_block_rate,
)
from nsqfast.nsqd.http_messages import MessageChanges
from nsqfast.nsqd.http_peek import Peek
from nsqfast.nsqd.http_publish import HttpPublisher
from nsqfast.nsqd.http_redrives import RedrivePages
from nsqfast.nsqd.options import TLS_REQUIRED
from nsqfast.nsqd.stats import Filter, collect, json_pieces, log_stats, text_pieces

if TYPE_CHECKING:  # importing these would slow down every start
    from nsqfast.nsqd.http_auth import HttpAuth
    from nsqfast.nsqd.metrics import Metrics

log = logging.getLogger("nsqd")

ADMIN_ONLY = error_answer(403, "ADMIN_ADDRESS_ONLY")
FORM_SIZE_MAX = 64 * 1024  # /debug/setblockrate


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint."""

    run: Callable[[Request], Answer]
    body_size_max: int = 0  # 0 = a body is read and dropped
    is_logged: bool = True
    # What --http-auth-required demands for it: "topic" = publishing to the named topic, "channel" = subscribing to the
    # named channel, "everything" = an authorization for everything, because the whole broker is concerned; "" =
    # nothing.
    need: str = ""
    is_admin: bool = False  # served only at --http-admin-address, if that is given
    path: str = ""  # set where it is added


class HttpApi:
    """A Handler (see nsqfast.net.http_server) for one broker."""

    def __init__(
        self, broker: Broker, browsers: BrowserRules, is_plain: bool, serves_admin: bool
    ) -> None:
        self._broker = broker
        self._browsers = browsers
        self._parts = Parts()
        publisher = HttpPublisher(broker.registry, broker.options)
        self._routes = _routes(broker, publisher, self._stats)
        self._refuses_plain = is_plain and broker.options.tls_required == TLS_REQUIRED
        self._serves_admin = serves_admin
        self._auth = _make_auth(broker, is_plain)
        closes = self._refuses_plain or self._auth is not None
        self.shortcut = None if closes else publisher.shortcut(self._browsers.asks_host)

    def limit(self, method: str, path: str) -> int:
        """The body size limit of the route."""
        route = self._routes.router.find(method, path)
        return route.body_size_max if route is not None else 0

    def __call__(self, request: Request) -> Answer:
        route = self._routes.find(request)
        if self._refuses_plain:
            return self._refuse_plain()
        if (refusal := self._browsers.refuse(request)) is not None:
            return refusal
        if route is None:
            return self._routes.answer_stray(request)
        begun_ns = time.perf_counter_ns() if route.is_logged else 0
        if route.is_admin and not self._serves_admin:
            self._routes.log_access(request, ADMIN_ONLY, begun_ns)
            return ADMIN_ONLY
        if self._auth is not None and route.need:
            judged = self._auth.check(request, route.need)
            if judged is not None and not isinstance(judged, Response):
                return self._run_later(route, request, judged, begun_ns)
            refusal = judged
        answer = refusal or self._routes.run(route, request)
        return self._routes.log_answer(request, answer, begun_ns) if begun_ns else answer

    async def _run_later(
        self, route: Route, request: Request, refused: Awaitable[Response | None], begun_ns: int
    ) -> Response:
        """Run the handler once an auth server has identified the client."""
        answer = await refused or self._routes.run(route, request)
        if not isinstance(answer, Response):
            answer = await answer
        if begun_ns:
            self._routes.log_access(request, answer, begun_ns)
        return answer

    def _refuse_plain(self) -> Response:
        address = self._broker.https_address
        port = address[1] if isinstance(address, tuple) else 0
        body = b'{"message": "TLS_REQUIRED", "https_port": %d}' % port
        answer = error_answer(403, "")
        answer.body = body
        return answer

    def _stats(self, request: Request) -> Answer:
        values = parameters(request)
        wanted = Filter(
            topic=values.get("topic", ""),
            channel=values.get("channel", ""),
            with_clients=SWITCH.get(values.get("include_clients", ""), True),
            with_memory=SWITCH.get(values.get("include_mem", ""), True),
        )
        found = collect(
            self._broker.registry, self._broker.health(), self._broker.start_time, wanted
        )
        if self._broker.drain.is_on:
            found["drain"] = self._broker.drain.figures()
        if self._broker.run_file.is_lossy:
            found["unclean_start"] = {"messages": self._broker.run_file.lost_count}
        if (log_found := log_stats(self._broker.registry)) is not None:
            found["commit_log"] = log_found
        if values.get("format") == "json":
            return self._parts.answer(json_pieces(found), _json_page)
        pieces = text_pieces(found, self._broker.start_time)
        encoded = (piece.encode("utf-8", "surrogateescape") for piece in pieces)
        return self._parts.answer(encoded, _text_page)


def _json_page(pieces: list[bytes]) -> Response:
    return Response(200, pieces[0], JSON, VERSION_HEADER, pieces=pieces[1:])


def _text_page(pieces: list[bytes]) -> Response:
    return Response(200, pieces[0], TEXT, VERSION_HEADER, pieces=pieces[1:])


def _routes(
    broker: Broker, publisher: HttpPublisher, stats: Callable[[Request], Answer]
) -> Routes[Route]:
    options = broker.options
    admin = Admin(broker)
    config = Config(options, broker.lookup.configure)
    peek = Peek(broker)
    changes = MessageChanges(peek, publisher)
    change, change_deferred = changes.handler, changes.deferred_handler
    drain = DrainPages(broker.drain, options.http_drain or bool(options.http_admin_address))
    operators = partial(Route, is_admin=True)
    routes: Routes[Route] = Routes(log)
    for method, pattern, route in (
        ("POST", "/pub", Route(publisher.pub, options.max_msg_size, is_logged=False, need="topic")),
        (
            "POST",
            "/mpub",
            Route(publisher.mpub, options.max_body_size, is_logged=False, need="topic"),
        ),
        ("GET", "/ping", Route(admin.ping)),
        ("GET", "/livez", Route(admin.livez, is_logged=False)),
        ("GET", "/readyz", Route(admin.readyz, is_logged=False)),
        ("GET", "/info", Route(admin.info)),
        ("GET", "/stats", Route(stats)),
        ("GET", "/drain", Route(drain.show)),
        ("POST", "/drain", operators(drain.begin, need="everything")),
        ("POST", "/drain/cancel", operators(drain.cancel, need="everything")),
        ("GET", "/metrics", Route(MetricsPage(_load_metrics, broker).get, is_logged=False)),
        ("POST", "/topic/create", Route(admin.create_topic, need="topic")),
        ("POST", "/topic/delete", operators(admin.delete_topic, need="topic")),
        ("POST", "/topic/empty", operators(admin.empty_topic, need="topic")),
        ("POST", "/topic/pause", operators(admin.pause_topic, need="topic")),
        ("POST", "/topic/unpause", operators(admin.unpause_topic, need="topic")),
        ("POST", "/channel/create", Route(admin.create_channel, need="channel")),
        ("POST", "/channel/delete", operators(admin.delete_channel, need="channel")),
        ("POST", "/channel/empty", operators(admin.empty_channel, need="channel")),
        ("POST", "/channel/pause", operators(admin.pause_channel, need="channel")),
        ("POST", "/channel/unpause", operators(admin.unpause_channel, need="channel")),
        ("POST", "/unclean_start/acknowledge", operators(admin.acknowledge, need="everything")),
        ("POST", "/client/disconnect", operators(admin.disconnect_client, need="everything")),
        ("GET", "/channel/peek", Route(peek.peek_channel, need="channel")),
        ("GET", "/channel/deferred", Route(peek.show_calendar, need="channel")),
        ("POST", "/channel/messages/requeue", operators(change("requeue"), need="channel")),
        ("POST", "/channel/messages/drop", operators(change("drop"), need="channel")),
        # They publish to another topic.
        ("POST", "/channel/messages/copy", operators(change("copy"), need="everything")),
        ("POST", "/channel/messages/move", operators(change("move"), need="everything")),
        ("POST", "/channel/deferred/run", operators(change_deferred("requeue"), need="channel")),
        ("POST", "/channel/deferred/cancel", operators(change_deferred("drop"), need="channel")),
        # A topic's messages go to all of its channels, so no permission for a single channel covers it.
        ("GET", "/topic/peek", Route(peek.peek_topic, need="everything")),
        *_redrive_routes(RedrivePages(broker, peek)),
        *_policy_routes(broker),
        ("GET", "/config/:opt", operators(config.get, need="everything")),
        ("PUT", "/config/:opt", operators(config.put, options.max_msg_size, need="everything")),
        ("GET", "/debug/pprof/", operators(debug_index, need="everything")),
        ("GET", "/debug/pprof/cmdline", operators(debug_cmdline, need="everything")),
        ("GET", "/debug/pprof/goroutine", operators(debug_stacks, need="everything")),
        ("GET", "/debug/pprof/heap", operators(debug_heap, need="everything")),
        (
            "PUT",
            "/debug/setblockrate",
            operators(set_block_rate, FORM_SIZE_MAX, need="everything"),
        ),
        ("POST", "/debug/freememory", operators(admin.free_memory, need="everything")),
    ):
        routes.router.add(method, pattern, replace(route, path=pattern))
    return routes


def _redrive_routes(pages: RedrivePages) -> Iterator[tuple[str, str, Route]]:
    """What goes back comes from another topic."""
    yield "GET", "/channel/redrive", Route(pages.show, need="everything")
    for path, answer in (("", pages.start), ("/cancel", pages.cancel)):
        route = Route(answer, need="everything", is_admin=True)
        yield "POST", f"/channel/redrive{path}", route


def _policy_routes(broker: Broker) -> Iterator[tuple[str, str, Route]]:
    for method, pattern, answer, body_size_max in (
        ("GET", "/policies", http_policies.show_all, 0),
        ("GET", "/policies/:opt", http_policies.show_one, 0),
        ("PUT", "/policies/:opt", http_policies.put, http_policies.BODY_SIZE_MAX),
        ("DELETE", "/policies/:opt", http_policies.delete, 0),
    ):
        page = http_policies.PolicyPage(broker, answer)
        yield method, pattern, Route(page, body_size_max, need="everything", is_admin=True)


def _make_auth(broker: Broker, is_plain: bool) -> "HttpAuth | None":
    if not broker.options.http_auth_required:
        return None
    assert broker.auth is not None, "validate() wants an auth server"
    from nsqfast.nsqd.http_auth import HttpAuth

    return HttpAuth(broker.auth, is_tls=not is_plain)


def _load_metrics() -> "type[Metrics]":
    from nsqfast.nsqd.metrics import Metrics

    return Metrics
