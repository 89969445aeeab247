"""Accepts connections for a protocol.

This replaces the loop's own server, which, short of descriptors, accepts and closes waiting connections, and cannot be
paused.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nsqfast.net.descriptor_reserve import DescriptorReserve
from nsqfast.wire.gotext import format_address, os_error
from nsqfast.wire.refusals import REFUSED

log = logging.getLogger(__name__)

# Connections accepted in one turn of the loop; each takes 0.1 ms to set up.
BATCH_COUNT = 10

# Makes a protocol; the compiled ones do not inherit from asyncio.BaseProtocol.
Factory = Callable[[], Any]

# The connection was gone before it was accepted, or the firewall withdrew it: the next one may be fine.
_LOST = {errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EINTR, errno.ENETDOWN}


@dataclass(frozen=True, slots=True)
class Ceiling:
    """How many connections there may be, and the protocol that refuses further ones."""

    count_max: int
    refusal: Factory


class Listener:
    """Serves from `start` to `close`; the caller still owns the socket. `open_count` says how many are connected."""

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        factory: Factory,
        reserve: DescriptorReserve,
        open_count: Callable[[], int],
        ceiling: Ceiling | None = None,
    ) -> None:
        self.accepted_count = 0  # without refused ones
        self.open_count = open_count
        self._name = name
        self._socket = listener
        self._factory = factory
        self._reserve = reserve
        self._ceiling = ceiling
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._is_listening = self._is_closed = self._is_full = False
        reserve.join(self._stop, self.start)

    def start(self) -> None:
        """Accept waiting and new connections."""
        if not self._is_listening and not self._is_closed:
            self._is_listening = True
            self._loop.add_reader(self._socket.fileno(), self._accept)
            self._accept()

    def _stop(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._loop.remove_reader(self._socket.fileno())

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        self._stop()
        self._is_closed = True
        for task in self._opening:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(BATCH_COUNT):
            try:
                connection, peer = self._socket.accept()
            except BlockingIOError:
                self._reserve.passed()
                return
            except OSError as error:
                if error.errno in _LOST:
                    continue
                self._reserve.shut(os_error(error))
                return
            task = self._loop.create_task(self._open(connection, peer, self._choose()))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
            if not self._reserve.admits(connection.fileno()):
                return

    def _choose(self) -> Factory:
        ceiling = self._ceiling
        if ceiling is None:
            return self._make
        is_full = self.open_count() + len(self._opening) >= ceiling.count_max
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                log.warning(
                    "%s: refusing clients, %d are connected: raise --max-connections",
                    self._name,
                    ceiling.count_max,
                )
            else:
                log.info("%s: serving new clients again", self._name)
        if not is_full:
            return self._make
        REFUSED["too_many_connections"] += 1
        return ceiling.refusal

    def _make(self) -> Any:
        self.accepted_count += 1
        return self._factory()

    async def _open(self, connection: socket.socket, peer: object, factory: Factory) -> None:
        task = asyncio.current_task()
        assert task is not None

        def make() -> Any:
            # The loop calls connection_made right behind this one, and then it is open: nobody counts it twice.
            self._loop.call_soon(self._opening.discard, task)
            return factory()

        try:
            await self._loop.connect_accepted_socket(make, connection)
        except OSError as error:
            log.error("%s: client(%s) - %s", self._name, format_address(peer), error)  # noqa: TRY400
            connection.close()
