"""Connections to nodes, kept open: a few to each, so that a node that does not answer cannot use up all of them."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nsqfast.errors import NsqfastError
from nsqfast.nsqadmin.cluster.body import Budget
from nsqfast.nsqadmin.cluster.connection import NO_HEADERS, Answer, ClosedError, Connection

CONNECTIONS_PER_HOST = 4
IDLE_S = 30.0  # more than three polls of a cluster without viewers

IpAddress = tuple[str, int]


class ConnectError(NsqfastError):
    """The node cannot be reached; `cause` is the system's error, TimeoutError if there was no reaction."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(slots=True)
class _Host:
    """One node: requests under way or waiting for their turn, and free connections."""

    address: str
    asking: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    idle: list[Connection] = field(default_factory=list)


class Pool:
    """`get` sends a request; 0 seconds mean no limit."""

    def __init__(
        self, headers: str, connect_timeout_s: float, timeout_s: float, budget: Budget
    ) -> None:
        self._headers = headers
        self._connect_timeout_s = connect_timeout_s or None
        self._timeout_s = timeout_s or None
        self._budget = budget
        self._hosts: dict[str, _Host] = {}
        self._open: set[Connection] = set()
        self._is_closed = False
        self._sweep: asyncio.TimerHandle | None = None

    async def get(self, address: str, path: str, headers: Mapping[str, str] = NO_HEADERS) -> Answer:
        """ConnectError, BrokenError, or TimeoutError if the whole request took too long."""
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"GET {path} HTTP/1.1\r\nHost: {address}\r\n{self._headers}{more}\r\n"
        request = head.encode("ascii")
        host = self._hosts.get(address)
        if host is None:
            host = self._hosts[address] = _Host(address)
        async with asyncio.timeout(self._timeout_s):
            await self._enter(host)
            try:
                return await self._ask(host, request)
            finally:
                self._leave(host)

    def close(self) -> None:
        """Close; waiting requests get no answer."""
        self._is_closed = True
        for connection in list(self._open):
            connection.abort()
        if self._sweep is not None:
            self._sweep.cancel()

    async def _enter(self, host: _Host) -> None:
        if host.asking < CONNECTIONS_PER_HOST:
            host.asking += 1
            return
        turn = asyncio.get_running_loop().create_future()
        host.waiting.append(turn)
        try:
            await turn  # a leaving request hands over its place
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(host)
            raise

    def _leave(self, host: _Host) -> None:
        while host.waiting:
            turn = host.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        host.asking -= 1
        self._forget_unused(host)

    def _forget_unused(self, host: _Host) -> None:
        if not host.asking and not host.idle:
            self._hosts.pop(host.address, None)

    async def _ask(self, host: _Host, request: bytes) -> Answer:
        if host.idle:
            try:
                return await self._ask_over(host, host.idle.pop(), request)
            except ClosedError:
                # The node closed it as idle, or restarted; the others are closed, too.
                for connection in list(host.idle):
                    connection.abort()
        return await self._ask_over(host, await self._connect(host), request)

    async def _ask_over(self, host: _Host, connection: Connection, request: bytes) -> Answer:
        answer = await connection.ask(request)
        if connection.is_open:
            host.idle.append(connection)
            connection.idle_since_s = asyncio.get_running_loop().time()
            self._watch_idle()
        return answer

    async def _connect(self, host: _Host) -> Connection:
        if self._is_closed:
            raise ConnectError(ConnectionAbortedError(errno.ECONNABORTED, "closed"))
        name, _, port = host.address.rpartition(":")
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                return await self._connect_to_one(host, await _resolve(name.strip("[]"), int(port)))
        except OSError as error:
            raise ConnectError(error) from None

    async def _connect_to_one(self, host: _Host, addresses: Sequence[IpAddress]) -> Connection:
        """The first address that answers; one that swallows everything leaves some time for the next."""
        for rest in range(len(addresses), 0, -1):
            ip, port = addresses[-rest]
            try:
                async with asyncio.timeout(
                    self._connect_timeout_s and self._connect_timeout_s / rest
                ):
                    return await self._connect_to(host, ip, port)
            except OSError:
                if rest == 1:
                    raise
        raise AssertionError("the resolver found nothing and said so")

    async def _connect_to(self, host: _Host, ip: str, port: int) -> Connection:
        def lost(connection: Connection) -> None:
            self._open.discard(connection)
            if connection in host.idle:
                host.idle.remove(connection)
                self._forget_unused(host)

        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(lost, self._budget), ip, port
        )
        self._open.add(connection)
        return connection

    def _watch_idle(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        self._sweep = None
        since_s = asyncio.get_running_loop().time() - IDLE_S
        idle = [connection for host in self._hosts.values() for connection in host.idle]
        for connection in idle:
            if connection.idle_since_s <= since_s:
                connection.abort()
            else:
                self._watch_idle()


async def _resolve(name: str, port: int) -> Sequence[IpAddress]:
    with contextlib.suppress(ValueError):
        return [(str(ipaddress.ip_address(name)), port)]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from None
    return [(str(at[0]), int(at[1])) for _, _, _, _, at in found]
