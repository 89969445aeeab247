"""A whole nsqadmin: what all its parts share, their routes, the listener, and the order of start and stop."""

import contextlib
import logging
import ssl
import time

from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.net import addresses
from nsqfast.net.addresses import warn_if_open
from nsqfast.net.tls import TLS_1_2, ServerTls
from nsqfast.nsqadmin import policies
from nsqfast.nsqadmin.access.audit import Audit
from nsqfast.nsqadmin.access.connection import serve
from nsqfast.nsqadmin.access.identity import ACCESS
from nsqfast.nsqadmin.access.middleware import add_access
from nsqfast.nsqadmin.actions import routes as actions
from nsqfast.nsqadmin.api import routes as api
from nsqfast.nsqadmin.checks import check_addresses, check_options
from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.cluster.history import History
from nsqfast.nsqadmin.cluster.poller import Poller
from nsqfast.nsqadmin.cluster.probes import ConsumerWatch
from nsqfast.nsqadmin.context import CONTEXT, Context, Urls
from nsqfast.nsqadmin.messages import pages as messages
from nsqfast.nsqadmin.options import VERSION_LINE, Options
from nsqfast.nsqadmin.problems import routes as problems
from nsqfast.nsqadmin.problems.alerts import ProblemWebhook
from nsqfast.nsqadmin.problems.kept_state import KeptState
from nsqfast.nsqadmin.problems.report import Problems
from nsqfast.nsqadmin.web.site import Site
from nsqfast.version import own_line

log = logging.getLogger("nsqadmin")

SHUTDOWN_TIMEOUT_S = 2.0  # for requests under way


class Server:
    """Start it once, stop it once."""

    context: Context

    def __init__(self, options: Options) -> None:
        self.options = options
        self._stack = contextlib.AsyncExitStack()
        self._tls_context: ssl.SSLContext | None = None

    async def start(self) -> None:
        """Serve on return; OptionsError says what the operator has to change, and nothing is left behind."""
        log.info("%s, %s", VERSION_LINE, own_line())
        try:
            await self._start()
        except BaseException as error:
            await self._stack.aclose()
            if isinstance(error, OptionsError):
                raise OptionsError(f"failed to instantiate nsqadmin - {error}") from None
            raise

    async def _start(self) -> None:
        options = self.options
        check_options(options)
        upstream = self._stack.enter_context(contextlib.closing(Upstream(options)))
        check_addresses(options)
        self._tls_context = self._read_certificate()
        problems, history = Problems(options, upstream), History(options)
        self.context = Context(
            options=options,
            urls=Urls(options.base_path),
            upstream=upstream,
            poller=Poller(options, upstream, history),
            history=history,
            problems=problems,
            webhook=ProblemWebhook(options, problems),
            consumers=ConsumerWatch(upstream),
            audit=Audit(options),
            start_time=time.time(),
        )
        # Pushed before the listener: entries of the last requests are still written.
        self._stack.push_async_callback(self.context.audit.close)
        await history.start()
        self._stack.push_async_callback(history.stop)
        await problems.silences.read()
        kept_state = KeptState(options, self.context.poller, problems)
        await kept_state.start()
        self._stack.push_async_callback(kept_state.stop)
        self.context.webhook.begin()
        self._stack.push_async_callback(self.context.webhook.close)
        await self._listen()
        self._stack.push_async_callback(self.context.problems.stop)
        self._stack.callback(self.context.consumers.stop)
        poller = self.context.poller
        poller.listen(self.context.problems.take)
        poller.start()
        self._stack.push_async_callback(poller.stop)

    async def _listen(self) -> None:
        app = self._app = web.Application()
        app[CONTEXT] = self.context
        make_app(app, self.context)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        bound = self._stack.enter_context(addresses.listen(self.options.http_address))
        if not self.options.auth_file:
            warn_if_open(log, [("--http-address", self.options.http_address, "--auth-file")])
        name = "HTTP" if self._tls_context is None else "HTTPS"
        self._status = addresses.format_listeners({name: bound})
        address = addresses.format_bound(addresses.bound_address(bound))
        self._stack.enter_context(serve(runner, bound, self.options, lambda: self._tls_context))
        self._stack.callback(log.info, "%s: closing %s", name, address)
        log.info("%s: listening on %s", name, address)

    def _read_certificate(self) -> ssl.SSLContext | None:
        options = self.options
        if not options.tls_cert:
            return None
        return ServerTls(options.tls_cert, options.tls_key, "", "", TLS_1_2).context()

    def reload(self) -> None:
        """Read certificate, secret, thresholds and users again; bad ones change nothing."""
        try:
            self._tls_context = self._read_certificate()
            self.context.upstream.reload()
            self.context.problems.reload()
        except OptionsError as error:
            log.error("SIGHUP: %s; it stays as it was", error)  # noqa: TRY400 - the operator's fault
        else:
            if self._tls_context is not None:
                log.info("SIGHUP: certificate reloaded")
        self._app[ACCESS].reload()

    def status(self) -> str:
        """Where it listens, for the service manager."""
        return self._status

    async def stop(self) -> None:
        """Stop answering, then stop asking."""
        await self._stack.aclose()


def make_app(app: web.Application, context: Context) -> None:
    """Give `app` its middlewares and its routes, and finally move the routes below --base-path."""
    add_access(app, context)
    api.add_routes(app, context)
    problems.add_routes(app, context)
    site = Site(context)
    site.add_routes(app)
    messages.add_routes(app, context, site)
    policies.add_routes(app, context, site)
    actions.add_routes(app, context, site.rows_of)
    if context.urls.base:
        move_below(app.router, context.urls.decoded_base)


def move_below(router: web.UrlDispatcher, base: str) -> None:
    """Move all routes. The router does not accept a path with `{`, or with characters to quote, as part of a route."""
    for resource in router.resources():
        router.unindex_resource(resource)
        resource.add_prefix(base)
        router.index_resource(resource)
