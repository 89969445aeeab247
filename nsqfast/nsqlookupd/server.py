"""A whole nsqlookupd: listeners, registry, and what connects them. Start and stop follow NSQ's order."""

import asyncio
import logging
import socket
import time
from collections import Counter
from typing import Any

import orjson

from nsqfast import NSQ_VERSION
from nsqfast.errors import OptionsError
from nsqfast.net import addresses
from nsqfast.net.http_server import HttpProtocol
from nsqfast.nsqlookupd.http_api import HttpApi
from nsqfast.nsqlookupd.options import VERSION_LINE, Options
from nsqfast.nsqlookupd.registry import Registry
from nsqfast.nsqlookupd.session import Desk
from nsqfast.nsqlookupd.tcp import Connection

log = logging.getLogger("nsqlookupd")


class Server:
    """Started once, stopped once."""

    desk: Desk

    def __init__(self, options: Options) -> None:
        self.options = options
        self.start_time = time.time()
        self.registry = Registry(
            options.inactive_producer_timeout_ns, options.tombstone_lifetime_ns
        )
        self.tcp_connections: set[Connection] = set()
        self.http_connections: set[HttpProtocol] = set()
        self.accepted: Counter[str] = Counter()  # connections by listener
        self.requests: Counter[tuple[str, int]] = (
            Counter()
        )  # over HTTP, by path (or "other") and status
        self._sockets: dict[str, socket.socket] = {}
        self._servers: dict[str, asyncio.AbstractServer] = {}

    async def start(self) -> None:
        """Serves when it returns; OptionsError says what the operator has to change, and nothing is left behind."""
        try:
            await self._start()
        except BaseException:
            self._close_listener("TCP")
            self._close_listener("HTTP")
            raise

    async def _start(self) -> None:
        log.info(VERSION_LINE)
        try:
            self._sockets["TCP"] = addresses.listen(self.options.tcp_address)
            self._sockets["HTTP"] = addresses.listen(self.options.http_address)
        except OptionsError as error:
            raise OptionsError(f"failed to instantiate nsqlookupd - {error}") from None
        self.desk = Desk(self.registry, self._identity())
        self._api = HttpApi(self)
        await self._serve_on("TCP", self._open_tcp)
        await self._serve_on("HTTP", self._open_http)

    def _open_tcp(self) -> Connection:
        self.accepted["tcp"] += 1
        return Connection(self.desk, self.tcp_connections)

    def _open_http(self) -> HttpProtocol:
        self.accepted["http"] += 1
        return HttpProtocol(self._api, connections=self.http_connections)

    def _identity(self) -> bytes:
        """What nsqd's are told: where to ask over HTTP, above all."""
        return orjson.dumps(
            {
                "broadcast_address": self.options.broadcast_address,
                "hostname": socket.gethostname(),
                "http_port": addresses.port_number(self._bound("HTTP")),
                "tcp_port": addresses.port_number(self._bound("TCP")),
                "version": NSQ_VERSION,
            }
        )

    def _bound(self, name: str) -> addresses.Bound:
        return addresses.bound_address(self._sockets[name])

    async def _serve_on(self, name: str, protocol: Any) -> None:
        loop = asyncio.get_running_loop()
        listener = self._sockets[name]
        create = (
            loop.create_unix_server if listener.family == socket.AF_UNIX else loop.create_server
        )
        self._servers[name] = await create(protocol, sock=listener, backlog=addresses.BACKLOG_COUNT)
        log.info("%s: listening on %s", name, addresses.format_address(self._bound(name)))

    def reload(self) -> None:
        """There is nothing that could have changed; NSQ's dies of the signal."""
        log.info("SIGHUP: nothing to reload")

    async def stop(self) -> None:
        """First no nsqd is heard any more, then nobody answered."""
        self._close_listener("TCP")
        for connection in list(self.tcp_connections):
            connection.abort()
        self._close_listener("HTTP")
        for client in list(self.http_connections):
            client.close()
        # One turn for the ends of connections.
        await asyncio.sleep(0)

    def _close_listener(self, name: str) -> None:
        server = self._servers.pop(name, None)
        listener = self._sockets.pop(name, None)
        if listener is None:
            return
        address = addresses.bound_address(listener)
        log.info("%s: closing %s", name, addresses.format_address(address))
        if server is not None:
            server.close()
        listener.close()
        addresses.remove_path(address)
