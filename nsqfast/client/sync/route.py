"""Publish one message at a time without the loop's thread: a second connection to each nsqd, on which the calling
thread writes and waits. Going through the loop's thread costs two thread switches for each publish.
"""

import threading
import time
from typing import Protocol

from nsqfast._ext.client.direct import Direct
from nsqfast.errors import ConnectError, NsqfastError

# The loop is good enough for a thread that publishes now and then; the connection is for one that keeps publishing.
PUBLISHES_BEFORE = 2
REFRESH_S = 1.0


class ConnectionOpener(Protocol):
    """What the route needs of a producer."""

    @property
    def connected_addresses(self) -> list[str]: ...
    async def open_connection_fd(self, address: str) -> int: ...


class DirectRoute:
    """Used by one thread at a time; other threads, and publishes without a direct connection, use the loop."""

    def __init__(self, opener: ConnectionOpener, timeout_s: float, *, is_sticky: bool) -> None:
        self.published = 0
        self.failed = 0
        self._opener = opener
        self._timeout_s = timeout_s
        self._is_sticky = is_sticky
        self._directs: dict[str, Direct] = {}
        self._turn = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self._publishes = 0
        self._refresh_at_s = 0.0
        self._is_refreshing = False

    def wants_refresh(self) -> bool:
        """Whether `refresh` should be called on the loop soon; asked once per publish."""
        self._publishes += 1
        if self._publishes < PUBLISHES_BEFORE or self._is_refreshing or self._is_closed:
            return False
        now_s = time.monotonic()
        if now_s < self._refresh_at_s:
            return False
        self._refresh_at_s = now_s + REFRESH_S
        self._is_refreshing = True
        return True

    async def refresh(self) -> None:
        """Connect to the nsqd to which the producer is connected, and disconnect from the others."""
        try:
            found = {address: one for address, one in self._directs.items() if one.is_open}
            for address in self._opener.connected_addresses:
                if address not in found and (direct := await self._open(address)):
                    found[address] = direct
            wanted = [] if self._is_closed else self._opener.connected_addresses
            for address in found.keys() - set(wanted):
                found[address].close()
            # In order of preference, and in a new dict: a thread may be iterating over the old one.
            self._directs = {address: found[address] for address in wanted if address in found}
        finally:
            self._is_refreshing = False

    async def _open(self, address: str) -> Direct | None:
        try:
            fd = await self._opener.open_connection_fd(address)
        except (NsqfastError, OSError):
            return None  # the loop's own connection reports the failure and retries
        return Direct(fd) if fd >= 0 else None

    def publish(self, head: bytes, body: bytes) -> bool:
        """Whether nsqd has the message; False = it was not sent. Other failures raise as in the producer."""
        if not self._directs or not self._lock.acquire(blocking=False):
            return False
        try:
            direct = self._choose()
            if direct is None:
                return False
            direct.ask(head, body, self._timeout_s)
        except ConnectError:
            return False
        else:
            self.published += 1
            return True
        finally:
            self._lock.release()

    def _choose(self) -> Direct | None:
        usable = [direct for direct in self._directs.values() if direct.is_open]
        if not usable:
            return None
        if self._is_sticky:
            return usable[0]
        self._turn = (self._turn + 1) % len(usable)
        return usable[self._turn]

    def forget(self, address: str) -> None:
        """Disconnect from this address."""
        directs = dict(self._directs)
        if direct := directs.pop(address, None):
            self._directs = directs
            direct.close()

    def close(self) -> None:
        """Disconnect; a publish that waits for its answer gets it first."""
        self._is_closed = True
        for direct in self._directs.values():
            direct.close()
