"""One nsqlookupd, and the reports that it gets from this broker (spec nsqd-core §9, nsqlookupd §2).

Each peer has its own task, so a slow or dead one delays nobody. Commands wait in a queue; without a connection nothing
is queued, because a new connection begins by registering everything.
"""

import asyncio
import contextlib
import logging
import random
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from nsqfast.errors import NsqfastError
from nsqfast.net.addresses import PORT_MAX, Inet, parse_address
from nsqfast.net.masks import masked
from nsqfast.net.slices import Slices
from nsqfast.streams.tls import reason
from nsqfast.wire.gojson import encode
from nsqfast.wire.gotext import os_error
from nsqfast.wire.names import quote
from nsqfast.wire.protocol import MAGIC_V1

log = logging.getLogger("nsqd")

SIZE = struct.Struct(">i")
OK = b"OK"
ERROR_SIZE_MAX = 200  # of an answer that is shown
TIMEOUT_S = 1.0  # to connect, and for each batch of answers
PING_S = 15.0
BATCH_COUNT = 256  # commands in one write
RETRY_S_MAX = 15.0
NAME_UNITS = 20  # of a budget: the cost of noting one name

Name = tuple[str, str | None]  # a topic, or a topic and a channel


class LookupdError(NsqfastError):
    """The peer is not an nsqlookupd, or failed this time."""


def register(name: Name) -> bytes:
    """The command that registers a topic or a channel."""
    return _command(b"REGISTER", name)


def unregister(name: Name) -> bytes:
    """The command that unregisters one."""
    return _command(b"UNREGISTER", name)


def _command(word: bytes, name: Name) -> bytes:
    return b" ".join([word, *(part.encode() for part in name if part is not None)]) + b"\n"


def read_identity(answer: bytes) -> tuple[str, int]:
    """Broadcast address and HTTP port of an nsqlookupd, from its answer to IDENTIFY."""
    try:
        found = orjson.loads(answer)
        host, port = found["broadcast_address"], found["http_port"]
        if type(host) is str and type(port) is int and 0 <= port <= PORT_MAX:
            return host, port
    except (ValueError, TypeError, KeyError):
        pass
    shown = answer[:ERROR_SIZE_MAX].decode("utf-8", "backslashreplace")
    raise LookupdError(f"IDENTIFY was answered with {shown!r}")


class LookupPeer:
    """Runs from `start` to `stop`."""

    def __init__(
        self,
        address: str,
        identity: Callable[[], dict[str, Any]],
        names: Callable[[], Iterator[Name]],
        answer_size_max: int,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self.address = address
        self.shown = masked(address)
        self.broadcast_address = ""  # from its answer; kept while it is away
        self.http_port = 0
        self.is_connected = False
        self.was_connected = asyncio.Event()  # once, and then it knew this broker
        self._was_refused = False  # a name, since it connected
        self.was_tried = asyncio.Event()  # set when its identity is known, or it does not answer
        self._identity = identity
        self._names = names
        self._answer_size_max = answer_size_max
        self._tls = tls  # of the next connection
        self._waiting: deque[bytes] = deque()
        self._is_wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect, and reconnect whenever needed."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End the connection without further commands, as NSQ does: nsqlookupd needs none."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self.was_tried.set()  # nobody should wait for an answer that cannot come any more

    def tell(self, command: bytes) -> None:
        """Queue a command; without a connection, try to get one."""
        if self.is_connected:
            self._waiting.append(command)
        self._is_wanted.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._converse()
            except (OSError, EOFError, TimeoutError, LookupdError) as error:
                log.error("LOOKUPD(%s): %s", self.shown, _text(error))  # noqa: TRY400 - the peer's fault
            except Exception:
                log.exception("LOOKUPD(%s): failed", self.shown)
            self.was_tried.set()
            failures = 0 if self.is_connected else failures + 1
            self.is_connected = False
            self._waiting.clear()
            self._is_wanted.clear()
            # Retry soon after a first failure, then less and less often; a change of names triggers a retry at once.
            delay_s = min(RETRY_S_MAX, 0.5 * 2 ** min(failures, 10))
            delay_s *= random.uniform(0.5, 1)  # noqa: S311 - no secret
            # Not wait_for: that of Python 3.11 loses a cancellation that comes together with what it waits for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._is_wanted.wait()

    async def _converse(self) -> None:
        """Exchange commands and answers until something fails."""
        place = parse_address(self.address)
        if not isinstance(place, Inet):
            raise LookupdError("an address needs a host and a port")
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(place.host, place.port, ssl=self._tls())
        try:
            await self._introduce(reader, writer)
            ping_at_s = time.monotonic() + PING_S
            while True:
                self._is_wanted.clear()
                if not self._waiting:
                    await self._rest(reader, ping_at_s - time.monotonic())
                batch = self._take_batch()
                # nsqlookupd considers a node dead that sends no PING, whatever else it sends.
                if time.monotonic() >= ping_at_s or not batch:
                    batch.append(b"PING\n")
                    ping_at_s = time.monotonic() + PING_S
                self._note_refusal(await self._say(reader, writer, batch))
        finally:
            writer.transport.abort()  # unsent commands do not matter: a new connection begins by registering everything

    def _note_refusal(self, answers: list[bytes]) -> None:
        """Log the first name of a connection that is one too many; the connection goes on without it."""
        refusal = next((answer for answer in answers if answer != OK), None)
        if refusal is not None and not self._was_refused:
            self._was_refused = True
            log.warning("LOOKUPD(%s): %s", self.shown, quote(refusal[:ERROR_SIZE_MAX]))

    async def _rest(self, reader: asyncio.StreamReader, wait_s: float) -> None:
        """Wait until there is something to send, or a PING is due; the end of the connection is noticed at once."""
        end = asyncio.ensure_future(reader.read(1))
        wanted = asyncio.ensure_future(self._is_wanted.wait())
        try:
            await asyncio.wait((end, wanted), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                raise LookupdError("an answer to nothing" if end.result() else "EOF")
        finally:
            end.cancel()
            wanted.cancel()
            # The stream has one reader at a time, and it is this one until its end was handled.
            await asyncio.wait((end, wanted))

    def _take_batch(self) -> list[bytes]:
        return [self._waiting.popleft() for _ in range(min(BATCH_COUNT, len(self._waiting)))]

    async def _introduce(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = encode(dict(sorted(self._identity().items())))
        [answer] = await self._say(
            reader, writer, [MAGIC_V1 + b"IDENTIFY\n" + SIZE.pack(len(body)) + body]
        )
        self.broadcast_address, self.http_port = read_identity(answer)
        if not self.broadcast_address:
            log.error("LOOKUPD(%s): no broadcast address", self.shown)
        # From here on changes are reported one by one, interleaved with the existing names.
        self.is_connected = True
        self._was_refused = False
        self.was_connected.set()
        self.was_tried.set()
        slices = Slices()
        for name in self._names():
            self._waiting.append(register(name))
            await slices.pause(NAME_UNITS)
        log.info("LOOKUPD(%s): connected, %d names to register", self.shown, len(self._waiting))

    async def _say(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, commands: list[bytes]
    ) -> list[bytes]:
        async with asyncio.timeout(TIMEOUT_S):
            writer.write(b"".join(commands))
            await writer.drain()
            return [await self._read(reader) for _ in commands]

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
        if not 0 <= size <= self._answer_size_max:
            raise LookupdError(f"an answer of {size} bytes")
        return await reader.readexactly(size)


def _text(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "i/o timeout"
    if isinstance(error, ssl.SSLError):
        return reason(error)
    if isinstance(error, EOFError):
        return "EOF"
    return os_error(error) if isinstance(error, OSError) else str(error)
