"""All nsqlookupd to which this broker reports, and the channels they know for a new topic (spec nsqd-core §2, §9)."""

import asyncio
import contextlib
import importlib
import logging
import random
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.broker.topics import Topics
from nsqfast.errors import NsqfastError, OptionsError, ProtocolError
from nsqfast.net.addresses import PORT_MAX, Inet, mask_address, parse_address
from nsqfast.net.secret_file import read_secret
from nsqfast.net.slices import Slices
from nsqfast.net.tls import TLS_1_2, client_context
from nsqfast.nsqd.options import Options
from nsqfast.streams.tls import reason
from nsqfast.version import NSQ_VERSION
from nsqfast.wire.gojson import encode
from nsqfast.wire.gotext import os_error
from nsqfast.wire.names import is_ephemeral, is_valid_name, quote
from nsqfast.wire.protocol import MAGIC_V1


@dataclass(frozen=True, slots=True)
class Credentials:
    """What counts for new connections."""

    secret: str = ""  # '' = none
    tls: ssl.SSLContext | None = None  # None = plain


def read_credentials(options: Options) -> Credentials:
    """Read the files as they are now; OptionsError if they are unusable."""
    secret = read_secret("--registration-secret-file", options.registration_secret_file)
    files = options.lookupd_tls_root_ca_file, options.lookupd_tls_cert, options.lookupd_tls_key
    if options.lookupd_tls:
        authorities, cert, key = files
        return Credentials(secret, client_context(authorities, TLS_1_2, cert, key))
    if any(files):
        raise OptionsError("certificates for nsqlookupd need TLS: give --lookupd-tls")
    return Credentials(secret)


# One nsqlookupd, and the reports that it gets from this broker (spec nsqd-core §9, nsqlookupd §2).
#
# Each peer has its own task, so a slow or dead one delays nobody. Commands wait in a queue; without a connection
# nothing is queued, because a new connection begins by registering everything.


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
        self.shown = mask_address(address)
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


NS = 1e9
ANSWER_SIZE_MAX = 16 << 20
CHANNEL_UNITS = 100  # of a budget: the cost of creating a channel


class Lookup:
    """Runs from `start` to `stop`; its addresses may change meanwhile."""

    def __init__(self, topics: Topics, options: Options, credentials: Credentials) -> None:
        self._topics = topics
        self._options = options
        self.credentials = credentials  # of new connections
        self._peers: dict[str, LookupPeer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: Any = None  # aiohttp's, created for the first query
        # By topic, while its channels are being queried: the channels deleted meanwhile.
        self._deleted: dict[str, set[str]] = {}
        self._is_away = False

    async def load_client(self) -> None:
        """Import the HTTP client, if it will be needed: this blocks everything for about 20 ms."""
        if self._options.nsqlookupd_tcp_addresses:
            await asyncio.to_thread(importlib.import_module, "aiohttp")

    def configure(self) -> None:
        """Create peers for the addresses now in the settings, and stop those that are gone."""
        addresses = () if self._is_away else self._options.nsqlookupd_tcp_addresses
        wanted = dict.fromkeys(addresses or ())
        for address in [address for address in self._peers if address not in wanted]:
            log.info("LOOKUP(%s): removing peer", mask_address(address))
            self._run(self._peers.pop(address).stop())
        for address in wanted:
            if address not in self._peers:
                log.info("LOOKUP(%s): adding peer", mask_address(address))
                peer = LookupPeer(
                    address, self._identity, self._names, self._options.max_body_size, self._tls
                )
                self._peers[address] = peer
                peer.start()
        self._run(self.load_client())

    async def was_registered(self) -> None:
        """Return when each nsqlookupd knows this broker, or knew it."""
        for peer in list(self._peers.values()):
            await peer.was_connected.wait()

    def leave(self) -> None:
        """End all connections, so that no nsqlookupd lists this broker, until `come_back`."""
        self._is_away = True
        self.configure()

    def come_back(self) -> None:
        """Connect and register again."""
        self._is_away = False
        self.configure()

    async def stop(self) -> None:
        """Stop all peers; topics waiting for an answer wait no longer."""
        for peer in self._peers.values():
            await peer.stop()
        self._peers.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # reports to nsqlookupd

    def changed(self, kind: str, topic: str, channel: str | None) -> None:
        """A topic or a channel was created or removed."""
        if kind == "channel-" and channel is not None:
            self.forget_channel(topic, channel)
        if not self._peers:
            return
        command = (register if kind.endswith("+") else unregister)((topic, channel))
        for peer in self._peers.values():
            peer.tell(command)
        if kind == "topic+":
            self._ask_for_channels(topic)

    def _identity(self) -> dict[str, Any]:
        options, secret = self._options, self.credentials.secret
        return {
            "broadcast_address": options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": options.broadcast_http_port,
            "tcp_port": options.broadcast_tcp_port,
            "topology_region": options.topology_region,
            "topology_zone": options.topology_zone,
            "version": NSQ_VERSION,
        } | ({"registration_secret": secret} if secret else {})

    def _tls(self) -> ssl.SSLContext | None:
        return self.credentials.tls

    def _names(self) -> Iterator[Name]:
        """Those that exist when their turn comes: earlier removals were already reported."""
        for topic in self._topics.sorted():
            if topic.exiting:
                continue
            channels = topic.channels()
            if not channels:
                yield topic.name, None
            for channel in channels:
                if not channel.exiting:
                    yield topic.name, channel.name

    # queries to nsqlookupd

    def _ask_for_channels(self, name: str) -> None:
        """Until the answer arrives the topic keeps its messages, so that no channel misses the first ones."""
        topic = self._topics.find(name)
        assert topic is not None
        topic.await_channels()
        deleted = self._deleted[name] = set()
        self._run(self._make_channels(topic, list(self._peers.values()), deleted))

    def forget_channel(self, topic: str, channel: str) -> None:
        """Somebody deleted the channel, whether it existed or not: a pending answer must not bring it back."""
        if topic in self._deleted:
            self._deleted[topic].add(channel)

    async def _make_channels(
        self, topic: Topic, peers: list[LookupPeer], deleted: set[str]
    ) -> None:
        try:
            found = await asyncio.gather(*[self._channels(peer, topic.name) for peer in peers])
            slices = Slices()
            for name in sorted(set().union(*found)):
                # An ephemeral channel exists while somebody consumes it, and here nobody does.
                if is_valid_name(name) and not is_ephemeral(name) and name not in deleted:
                    if topic.exiting:
                        return
                    self._topics.admit(topic.name, name)
                    topic.channel(name)
                await slices.pause(CHANNEL_UNITS)
        except ProtocolError as error:
            log.warning("LOOKUP: of what nsqlookupd knows, %s", error.detail)
        finally:
            if self._deleted.get(topic.name) is deleted:
                del self._deleted[topic.name]
            topic.have_channels()

    async def _channels(self, peer: LookupPeer, topic: str) -> set[str]:
        """The channels that one of them knows; none if it does not give a good answer."""
        await peer.was_tried.wait()
        if not peer.broadcast_address:
            log.error(
                "LOOKUPD(%s): not there to be asked for channels of topic %s", peer.shown, topic
            )
            return set()
        tls = self._tls()
        scheme = "http" if tls is None else "https"
        url = f"{scheme}://{_bracketed(peer.broadcast_address)}:{peer.http_port}/channels"
        try:
            session = await self._open_session()
            request = session.get(
                url, params={"topic": topic}, allow_redirects=False, ssl=tls or True
            )
            async with request as answer:
                body = await _body(answer)
            return set(map(str, orjson.loads(body)["channels"]))
        except Exception as error:  # whatever the error is, the topic must not wait for ever
            log.warning(
                "LOOKUPD(%s): no channels of topic %s - %s",
                peer.shown,
                topic,
                error or repr(error),
            )
            return set()

    async def _open_session(self) -> Any:
        # Importing it takes a while, and the loop has others to serve.
        aiohttp = await asyncio.to_thread(importlib.import_module, "aiohttp")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={
                    "Accept": "application/vnd.nsq; version=1.0",
                    "Accept-Encoding": "identity",
                },
                auto_decompress=False,  # no answer can expand
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=self._options.http_client_request_timeout_ns / NS,
                    sock_connect=self._options.http_client_connect_timeout_ns / NS,
                ),
            )
        return self._session


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _body(answer: Any) -> bytearray:
    if answer.status != 200:
        raise LookupdError(f"answered with {answer.status}")
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > ANSWER_SIZE_MAX:
            raise LookupdError(f"an answer of more than {ANSWER_SIZE_MAX} bytes")
    return body
