"""--metrics-address: a tool's figures for Prometheus."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Self

from prometheus_client.registry import Collector, CollectorRegistry

from nsqfast.net import addresses
from nsqfast.net.descriptor_reserve import DescriptorReserve
from nsqfast.net.http_message import Request, Response
from nsqfast.net.http_reply import error_answer
from nsqfast.net.http_server import HttpProtocol
from nsqfast.net.listener import Listener
from nsqfast.net.slices import Turns
from nsqfast.stats.prometheus import Format
from nsqfast.tools.shared.program import log

if TYPE_CHECKING:
    import socket


class MetricsServer:
    """GET /metrics, from `start` to `close`, or in a `with` block."""

    def __init__(self, address: str, *figures: Collector) -> None:
        self._address = address
        self._registry = CollectorRegistry()
        for collector in figures:
            self._registry.register(collector)
        self._clients: set[HttpProtocol] = set()
        self._socket: socket.socket | None = None
        self._listener: Listener | None = None
        self._reserve: DescriptorReserve | None = None

    def __enter__(self) -> Self:
        """Serve if there is an address, and log which it is; OptionsError if it is unavailable."""
        if self._address:
            log.info("metrics: listening on %s", self.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> str:
        """Serve on return, at the returned address; OptionsError if it is unavailable."""
        self._socket = addresses.listen(self._address)
        self._reserve = DescriptorReserve(asyncio.get_running_loop())
        make = partial(HttpProtocol, self, connections=self._clients, turns=Turns())
        self._listener = Listener(
            "metrics", self._socket, make, self._reserve, self._clients.__len__
        )
        self._listener.start()
        return addresses.format_bound(addresses.bound_address(self._socket))

    def close(self) -> None:
        """Stop answering."""
        if self._socket is None or self._listener is None or self._reserve is None:
            return
        bound = addresses.bound_address(self._socket)
        self._listener.close()
        self._reserve.close()
        self._socket.close()
        addresses.remove_path(bound)
        for client in list(self._clients):
            client.close()

    def limit(self, method: str, path: str) -> int:  # noqa: ARG002 - as Handler has it
        """Always 0: no request needs a body."""
        return 0

    def __call__(self, request: Request) -> Response:
        if request.path != "/metrics":
            return error_answer(404, "NOT_FOUND")
        if request.method not in {"GET", "HEAD"}:
            return error_answer(405, "METHOD_NOT_ALLOWED", b"Allow: GET\r\n")
        wanted = Format(request.headers.get(b"accept", b"").decode("latin-1"))
        body = wanted.metrics(self._registry.collect()) + wanted.end
        return Response(200, body, wanted.content_type)
