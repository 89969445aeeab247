"""Requests to HTTP servers, with persistent connections, deadlines and redirects."""

import asyncio
import math
import ssl
from functools import partial

from nsqfast.tools.nsq_to_http.connection import Answer, Connection, RequestError, StaleError
from nsqfast.tools.nsq_to_http.target import Origin
from nsqfast.wire.gotext import os_error

TLS_TIMEOUT_S = 10.0  # as in Go
IDLE_TIMEOUT_S = 90.0  # as in Go
POOL_COUNT_MAX = 100  # bounded, because redirects may lead anywhere


class Pool:
    """Idle connections to one origin."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.idle: list[Connection] = []  # the one used last is used next


class HttpClient:
    """0 seconds = wait for ever."""

    def __init__(self, connect_timeout_s: float, request_timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect_timeout_s = connect_timeout_s or math.inf
        self._request_timeout_s = request_timeout_s or math.inf
        self._pools: dict[Origin, Pool] = {}
        self._open: set[Connection] = set()
        self._busy: set[Connection] = set()
        self._watched_s = math.inf  # when to check the busy ones next
        self._watch: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._context: ssl.SSLContext | None = None

    def pool(self, origin: Origin) -> Pool:
        """The pool of connections to this target's origin."""
        if origin not in self._pools:
            if len(self._pools) >= POOL_COUNT_MAX:
                self._pools.clear()  # users of one keep it
            self._pools[origin] = Pool(origin)
        return self._pools[origin]

    def deadline_s(self) -> float:
        """The deadline, by the loop's clock, of a request that begins now."""
        return self._loop.time() + self._request_timeout_s

    async def ask(self, pool: Pool, request: bytes, deadline_s: float) -> Answer:
        """Send a request; RequestError if there is no answer.

        The server may have received it twice: over a connection that it was about to close, and over a new one.
        """
        if pool.idle:
            try:
                return await self._ask(pool.idle.pop(), request, deadline_s)
            except StaleError:
                pass
        return await self._ask(await self._connect(pool, deadline_s), request, deadline_s)

    async def _ask(self, connection: Connection, request: bytes, deadline_s: float) -> Answer:
        if deadline_s < self._watched_s:
            self._watch_at(deadline_s)
        self._busy.add(connection)
        try:
            return await connection.ask(request, deadline_s)
        except asyncio.CancelledError:
            connection.abort()
            raise
        finally:
            self._busy.discard(connection)

    async def _connect(self, pool: Pool, deadline_s: float) -> Connection:
        is_tls, host, port = pool.origin
        context = self._tls() if is_tls else None
        limit_s = self._loop.time() + self._connect_timeout_s + (TLS_TIMEOUT_S if is_tls else 0.0)
        limit_s = min(limit_s, deadline_s)
        make = partial(Connection, partial(self._free, pool), partial(self._lose, pool))
        try:
            async with asyncio.timeout_at(None if limit_s == math.inf else limit_s):
                _, connection = await self._loop.create_connection(
                    make, host, port, ssl=context, server_hostname=host if is_tls else None
                )
        except TimeoutError:
            raise RequestError(f"dial tcp {host}:{port}: timeout") from None
        except OSError as error:  # TLS errors are OSErrors, too
            text = str(error) if isinstance(error, ssl.SSLError) else os_error(error)
            raise RequestError(f"dial tcp {host}:{port}: {text}") from None
        self._open.add(connection)
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context()
            self._context.set_alpn_protocols(["http/1.1"])
        return self._context

    # -- time

    def _free(self, pool: Pool, connection: Connection) -> None:
        connection.idle_since_s = self._loop.time()
        pool.idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE_TIMEOUT_S, self._close_idle)

    def _lose(self, pool: Pool, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in pool.idle:
            pool.idle.remove(connection)

    def _close_idle(self) -> None:
        end_s = self._loop.time() - IDLE_TIMEOUT_S
        for connection in list(self._open - self._busy):
            if connection.idle_since_s <= end_s:
                connection.abort()
        later = self._loop.call_later(IDLE_TIMEOUT_S / 3, self._close_idle) if self._open else None
        self._sweep = later

    def _watch_at(self, time_s: float) -> None:
        """One timer for all: a request answered in time costs no timer of its own."""
        if self._watch is not None:
            self._watch.cancel()
        self._watched_s = time_s
        self._watch = self._loop.call_at(time_s, self._time_out)

    def _time_out(self) -> None:
        self._watch, self._watched_s = None, math.inf
        now_s = self._loop.time()
        next_s = math.inf
        for connection in list(self._busy):
            if connection.deadline_s <= now_s:
                connection.time_out()
            else:
                next_s = min(next_s, connection.deadline_s)
        if next_s < math.inf:
            self._watch_at(next_s)

    def close(self) -> None:
        """Abort pending requests, and disconnect."""
        for timer in (self._watch, self._sweep):
            if timer is not None:
                timer.cancel()
        for connection in list(self._open):
            connection.time_out()
