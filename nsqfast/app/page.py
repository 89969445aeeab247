"""GET /healthz and /metrics of a process."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from nsqfast.app.subscription import Subscription
from nsqfast.client.middleware import Middleware
from nsqfast.client.stats import ConsumerStats
from nsqfast.net import addresses
from nsqfast.program.extras import find_missing, needs

if TYPE_CHECKING:
    from aiohttp import web


# The body and its content type, in the format that an Accept header asks for.
WriteMetrics = Callable[[str], tuple[bytes, str]]

CLOSE_TIMEOUT_S = 1.0
NO_METRICS = "there are no metrics: pip install 'nsqfast[prometheus]'\n"


OK = "ok"
STARTING = "starting"
STOPPING = "stopping"
NOT_CONNECTED = "not connected"  # a consumer to any nsqd; it goes on trying
FAILED = "failed"  # a consumer has ended, and the others end, too


@dataclass(frozen=True, slots=True)
class Health:
    """A word, and what belongs to it."""

    state: str
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        return self.state == OK

    def encode(self) -> bytes:
        """The body of an answer."""
        return (
            orjson.dumps({"status": self.state, **self.details}, option=orjson.OPT_INDENT_2) + b"\n"
        )


def describe(subscription: Subscription, stats: ConsumerStats) -> dict[str, object]:
    """What /healthz shows of a consumer."""
    connections = stats.connections
    return {
        "topic": subscription.topic,
        "channel": subscription.channel,
        "connected": [name for name, one in connections.items() if one.is_connected],
        "errors": {name: one.error for name, one in connections.items() if not one.is_connected},
        "received": stats.received,
        "finished": stats.finished,
        "requeued": stats.requeued,
        "in_flight": stats.in_flight,
    }


class Page:
    """From `start` to `close`. The status of /healthz is 200 or 503."""

    def __init__(
        self,
        address: str,
        look: Callable[[], Awaitable[Health]],
        write_metrics: WriteMetrics | None,
    ) -> None:
        self._address = address
        self._look = look
        self._write_metrics = write_metrics
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Serve on return, at the returned address; OptionsError if it is not free."""
        # Late, because it takes a while, and most apps have no page.
        from aiohttp import web

        listener = addresses.listen(self._address)
        self._bound = addresses.bound_address(listener)
        pages = web.Application()
        pages.router.add_get("/healthz", self._healthz)
        pages.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(pages, access_log=None, shutdown_timeout=CLOSE_TIMEOUT_S)
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        return addresses.format_bound(self._bound)

    async def close(self) -> None:
        """Stop answering."""
        if self._runner is not None:
            await self._runner.cleanup()
            addresses.remove_path(self._bound)

    async def _healthz(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        del request
        health = await self._look()
        return web.Response(
            body=health.encode(),
            status=200 if health.is_ok else 503,
            content_type="application/json",
        )

    async def _metrics(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        if self._write_metrics is None:
            return web.Response(text=NO_METRICS, status=501)
        body, content_type = self._write_metrics(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})


def add_metrics(middleware: Sequence[Middleware]) -> list[Middleware] | None:
    """The middleware with that which counts, unless it is there; None if prometheus-client is not installed."""
    if find_missing("prometheus"):
        return None
    with needs("/metrics", "prometheus"):
        from nsqfast.client.prometheus import Metrics
    is_there = any(isinstance(each, Metrics) for each in middleware)
    return list(middleware) if is_there else [Metrics(), *middleware]


def write_registry(accept: str, folder: str = "") -> tuple[bytes, str]:
    """All figures of this process; with a folder, of all processes that write theirs there, as
    prometheus_client.multiprocess has it.
    """
    with needs("/metrics", "prometheus"):
        from prometheus_client import REGISTRY, CollectorRegistry, exposition, multiprocess
    registry = REGISTRY
    if folder:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]  # it has no types
    write, content_type = exposition.choose_encoder(accept)
    return write(registry), content_type
