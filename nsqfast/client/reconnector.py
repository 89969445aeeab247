"""One address of a producer or consumer: connected, or about to reconnect, for as long as it is wanted."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from nsqfast._ext.client.connection import ClientConnection
from nsqfast.client.backoff import RECONNECT_LAST_S, ReconnectDelays
from nsqfast.client.config import Config, seconds
from nsqfast.client.lifetime import Logger
from nsqfast.errors import ConnectError, NsqfastError, RefusedError, WrongPeerError

CLOSE_TIMEOUT_S = 5.0
HANDSHAKE_REST_S = 1.0  # IDENTIFY, TLS, AUTH, SUB


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection that is ready for its work, and its description for the log: "nsqd 1.3.0, subscribed"."""

    connection: ClientConnection
    text: str


class Owner(Protocol):
    """What a Reconnector needs of a Producer or Consumer."""

    async def open(self, address: str, on_closed: Callable[[Any], None]) -> Opened:
        """Open a connection that is ready for its work; an NsqfastError says why that failed."""

    def on_trouble(self, reconnector: "Reconnector") -> None:
        """There is no connection, and the next attempt has to wait."""

    def on_cancelled(self) -> None:
        """Somebody other than the owner cancelled the task: usually the end of the event loop."""


class Reconnector:
    """Runs in a task of its own until `stop`. The pauses between attempts double, from 0.1 s to 10 s, with jitter.

    (In go-nsq the pause is `lookupd_poll_interval`, by default a minute; here that is the upper limit of the pauses.)
    """

    def __init__(
        self,
        address: str,
        owner: Owner,
        config: Config,
        log: Logger,
        name: str = "",
        pause_s_max: float = RECONNECT_LAST_S,
        first_pause_s: float = 0.0,
    ) -> None:
        self.address = address
        self.connection: ClientConnection | None = None
        self.error: BaseException | None = None  # why it is not connected, or was not the last time
        self.connects = 0
        self._owner = owner
        self._log = log
        self._where = f"{name} {address}" if name else address
        self._delays = ReconnectDelays(min(pause_s_max, seconds(config.lookupd_poll_interval)))
        self._first_pause_s = first_pause_s
        self._is_stopping = False
        self._lost_s = 0.0  # when the connection was lost, by the loop's clock
        loop = asyncio.get_running_loop()
        self.tried: asyncio.Future[None] = (
            loop.create_future()
        )  # done when the first attempt is over
        self._task = loop.create_task(self._keep(), name=f"nsqfast: {address}")

    async def wait_tried(self) -> None:
        """Return when the first attempt is over; any number of callers may wait, and give up."""
        await asyncio.wait([self.tried])

    @property
    def was_refused(self) -> bool:
        """Whether another attempt would hardly help: nsqd, or whatever listens there, refused."""
        return self.connection is None and isinstance(self.error, RefusedError | WrongPeerError)

    def raise_refusal(self) -> None:
        """If it was refused, raise that, with the address."""
        if self.was_refused:
            assert self.error is not None
            if isinstance(self.error, WrongPeerError):
                raise WrongPeerError(f"{self.address}: {self.error}")
            raise self.error

    async def _keep(self) -> None:
        try:
            if self._first_pause_s > 0:
                await asyncio.sleep(self._first_pause_s)
            while not self._is_stopping:
                await self._connect_and_wait()
        except asyncio.CancelledError:
            if not self._is_stopping:
                self._end_connection("its event loop has ended")
                self._owner.on_cancelled()
            raise

    async def _connect_and_wait(self) -> None:
        try:
            await self._connect_once()
        except NsqfastError as error:
            self.error = error
        except Exception as error:
            # A bug, ours or in a broker's answer: keep trying the address.
            self._log.exception("%s: unexpected", self._where)
            self.error = error
        was_connected = self.connection is not None
        self.connection = None
        _done(self.tried, None)
        if not self._is_stopping:
            pause_s = self._delays.next_s()
            word = "lost" if was_connected else "no connection"
            self._log.warning("%s: %s: %s; again in %.1f s", self._where, word, self.error, pause_s)
            self._owner.on_trouble(self)
            await asyncio.sleep(pause_s)

    async def _connect_once(self) -> None:
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[Any] = loop.create_future()
        opened = await self._owner.open(self.address, lambda connection: _done(closed, connection))
        since_s = loop.time()
        self.connection = opened.connection
        self.connects += 1
        again = f" again after {since_s - self._lost_s:.1f} s" if self._lost_s else ""
        self._log.info("%s: connected%s, %s", self._where, again, opened.text)
        _done(self.tried, None)
        await closed
        self.error = opened.connection.error
        self._lost_s = loop.time()
        self._delays.lost_after(self._lost_s - since_s)

    async def stop(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Give written data this long to leave, close the connection, end the task."""
        was_connected = self.connection is not None
        self._is_stopping = True
        if self.connection is None:
            self._task.cancel()
        else:
            self.connection.close()
            await asyncio.wait([self._task], timeout=timeout_s)
            self._end_connection("nsqd takes nothing more")
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if was_connected:
            self._log.info("%s: closed", self._where)
        _done(self.tried, None)

    def _end_connection(self, why: str) -> None:
        if self.connection is not None:
            self.connection.fail(ConnectError(why))


def first_timeout_s(config: Config) -> float:
    """How long a start waits for the first connection; after that, attempts continue without it."""
    return seconds(config.dial_timeout) + HANDSHAKE_REST_S


def _done(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)
