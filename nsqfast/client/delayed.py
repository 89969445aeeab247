"""Publish a message that its nsqd holds back, and cancel it, or have it delivered at once, as long as it does.

The nsqd that answered is asked, on a second connection to it that is made when it is needed: a command that is refused,
as one without permission is, ends its connection, and publishes should not have to be sent again for that.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Generic, Protocol

from nsqfast._ext.client.publish_connection import Dispatcher, PublishConnection
from nsqfast.client.addresses import check_address
from nsqfast.client.config import Config
from nsqfast.client.connection import dial, make_producer_connection
from nsqfast.client.lifetime import Logger, Resource
from nsqfast.client.middleware import Middleware, around_publish
from nsqfast.client.payload import Body_contra
from nsqfast.errors import ConnectError, OptionsError, UnsupportedError
from nsqfast.wire.names import check_name

if TYPE_CHECKING:
    import ssl


# Compiled when they are used: few programs do.
_ID = rb"[0-9a-f]{16}"
_TOLD = rb"OK ([0-9a-f]{16})"
_COUNTED = rb"OK ([0-9]{1,9})"


class DelayedPublisher(Resource, Generic[Body_contra]):
    """The part of a Producer that knows of delays."""

    _config: Config
    _context: "ssl.SSLContext | None"
    _middleware: Sequence[Middleware]
    _timeout_s: float

    def __init__(self, logger: Logger | None) -> None:
        super().__init__(logger)
        self._commands: dict[str, _Commands] = {}

    def _ready(self) -> Dispatcher:
        raise AssertionError("a DelayedPublisher without _ready")

    async def publish_delayed(
        self, topic: str, body: Body_contra, delay: timedelta | datetime
    ) -> "DelayedMessage":
        """Like `publish`, but nsqd holds the message back for this long, or until then (at most --max-req-timeout, an
        hour). What has passed is due at once. TypeError: a number; ValueError: a time without a time zone.
        """
        self._check_loop()
        delay_ms = _delay_ms(delay)
        with around_publish(self._middleware, topic, [body]) as (changed,):
            nsqd, answer = await self._ready().send_delayed(topic, changed, delay_ms)

        told = re.fullmatch(_TOLD, answer)
        return DelayedMessage(topic, nsqd, told[1] if told else None, self)

    def delayed_message(self, topic: str, nsqd: str, id: bytes) -> "DelayedMessage":
        """The handle of a message that was published earlier, by this process or another. OptionsError: none can have
        this topic, address or id.
        """

        check_handle(topic, nsqd, id)
        return DelayedMessage(topic, nsqd, id, self)

    async def end_deferral(self, command: bytes, topic: str, nsqd: str, id: bytes | None) -> int:
        """Used by DelayedMessage."""
        self._check_loop()
        if id is None:
            raise _untold(nsqd)
        if nsqd not in self._commands:
            self._commands[nsqd] = _Commands(nsqd, self._config, self._context)
        line = b"%s %s %s\n" % (command, topic.encode("ascii"), id)
        answer = await self._commands[nsqd].ask(line, self._timeout_s)
        counted = re.fullmatch(_COUNTED, answer)
        if counted is None:
            raise ConnectError(f"{nsqd}: {answer[:60]!r} is no answer to {command.decode()}")
        return int(counted[1])

    def _close_commands(self) -> None:
        while self._commands:
            self._commands.popitem()[1].close()


class _Commands:
    """A connection to one nsqd that publishes nothing."""

    def __init__(self, address: str, config: Config, context: "ssl.SSLContext | None") -> None:
        self._address = address
        self._config = config
        self._context = context
        self._opening = asyncio.Lock()
        self._connection: PublishConnection | None = None

    async def ask(self, line: bytes, timeout_s: float) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                return await (await self._open()).ask(line)
        except TimeoutError:
            raise ConnectError(f"{self._address}: no answer in {timeout_s:g} s") from None

    async def _open(self) -> PublishConnection:
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                make = make_producer_connection(lambda _connection: None)
                connection, features = await dial(self._address, self._config, self._context, make)
                if not features.tells_ids:
                    connection.close()
                    raise _untold(self._address)
                self._connection = connection
            return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def check_handle(topic: str, nsqd: str, id: bytes) -> None:
    """Raise OptionsError if no deferred message has these."""
    check_address(nsqd)
    check_name("topic", topic)
    if not isinstance(id, bytes) or re.fullmatch(_ID, id) is None:
        raise OptionsError(f"{id!r} is no id of a message: bytes, 16 lower-case hex digits")


def _untold(nsqd: str) -> UnsupportedError:
    return UnsupportedError(
        f"{nsqd} tells no ids of deferred messages, so no delay can be ended there: NSQ's own nsqd does not, "
        "nor does an older nsqfast-nsqd"
    )


def _delay_ms(delay: object) -> int:
    """At least 1: without a delay there is nothing to be told."""
    if isinstance(delay, datetime):
        if delay.tzinfo is None:
            raise ValueError(
                f"delay={delay!r} has no time zone: write datetime.now(UTC) + timedelta(...), or a timedelta"
            )
        delay = delay - datetime.now(UTC)
    if not isinstance(delay, timedelta):
        raise TypeError(
            f"delay is a timedelta, or a datetime with a time zone, not {delay!r:.80}: write timedelta(seconds=...)"
        )
    return max(1, round(delay / timedelta(milliseconds=1)))


CANCEL = b"CANCEL_DEFERRED"
RUN = b"RUN_DEFERRED"


class _Ender(Protocol):
    async def end_deferral(
        self, command: bytes, topic: str, nsqd: str, id: bytes | None
    ) -> int: ...


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that was published with a delay: its topic, the address of the nsqd that has it, and its id.

    The id is None if that nsqd tells none, as NSQ's own; then the methods raise UnsupportedError.
    """

    topic: str
    nsqd: str
    id: bytes | None
    _producer: _Ender = field(repr=False, compare=False)

    async def cancel(self) -> int:
        """Drop it where it is not due yet; return in how many channels that was, 0 = nowhere any more.

        Copies that are queued, in flight or finished stay what they are. ConnectError: there was no answer; ask again.
        """
        return await self._producer.end_deferral(CANCEL, self.topic, self.nsqd, self.id)

    async def run_now(self) -> int:
        """The same, but queue it there at once."""
        return await self._producer.end_deferral(RUN, self.topic, self.nsqd, self.id)
