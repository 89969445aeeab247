"""One address of a producer or consumer: connected, or about to be again, for as long as it is wanted."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Protocol

from nsqfast._ext.link import Link
from nsqfast.client.backoff import RECONNECT_LAST_S, ReconnectDelays
from nsqfast.client.config import Config, seconds
from nsqfast.errors import ConnectError, NsqfastError

log = logging.getLogger("nsqfast.client")

CLOSE_TIMEOUT_S = 5.0


class Owner(Protocol):
    """What a Keeper needs of a Producer or Consumer."""

    async def open(self, address: str, on_closed: Callable[[Any], None]) -> Link:
        """A connection that is ready for its work; an NsqfastError says why there is none."""

    def on_trouble(self, keeper: "Keeper", pause_s: float) -> None:
        """There is no connection; the next attempt is that far away."""


class Keeper:
    """A task of its own, until `stop`. The pauses between attempts double, from 0.1 s to 10 s, with jitter.

    (In go-nsq the pause is `lookupd_poll_interval`, a minute if nothing is said; here that is their ceiling.)
    """

    def __init__(self, address: str, owner: Owner, config: Config) -> None:
        self.address = address
        self.link: Link | None = None
        self.error: BaseException | None = None  # why it is not connected, or was not before
        self.connects = 0
        self._owner = owner
        self._delays = ReconnectDelays(min(RECONNECT_LAST_S, seconds(config.lookupd_poll_interval)))
        self._is_stopping = False
        loop = asyncio.get_running_loop()
        self.tried: asyncio.Future[None] = loop.create_future()  # the first attempt is over
        self._task = loop.create_task(self._keep(), name=f"nsqfast: {address}")

    async def _keep(self) -> None:
        while not self._is_stopping:
            try:
                await self._connect_once()
            except NsqfastError as error:
                self.error = error
            except Exception as error:
                # A bug, ours or of what a broker said: it must not leave the address alone for ever.
                log.exception("%s: unexpected", self.address)
                self.error = error
            self.link = None
            _done(self.tried, None)
            if not self._is_stopping:
                pause_s = self._delays.next_s()
                self._owner.on_trouble(self, pause_s)
                await asyncio.sleep(pause_s)

    async def _connect_once(self) -> None:
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[Any] = loop.create_future()
        link = await self._owner.open(self.address, lambda link: _done(closed, link))
        since_s = loop.time()
        self.link = link
        self.connects += 1
        _done(self.tried, None)
        await closed
        self.error = link.error
        # One that is closed as soon as it is made is tried less and less often, too.
        if loop.time() - since_s > RECONNECT_LAST_S:
            self._delays.reset()

    async def stop(self) -> None:
        """Let what was written leave, close the connection, end the task."""
        self._is_stopping = True
        if self.link is None:
            self._task.cancel()
        else:
            self.link.close()
            await asyncio.wait([self._task], timeout=CLOSE_TIMEOUT_S)
            if self.link is not None:
                self.link.fail(ConnectError("nsqd takes nothing more"))
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        _done(self.tried, None)


def _done(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)
