"""Which nsqd have a topic: nsqlookupd's /lookup (spec nsqlookupd §4, client §3.1).

go-nsq asks one nsqlookupd per poll, in turn. Here all are asked at once, and each answer counts as it arrives: a slow
or dead one delays nothing, and the first poll finds a node that only one of them knows.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

import orjson

from nsqfast.client.addresses import check_address
from nsqfast.client.config import Config, seconds
from nsqfast.client.connection import lookupd_context
from nsqfast.client.lifetime import Logger, log
from nsqfast.errors import ConnectError, OptionsError, WrongPeerError
from nsqfast.wire.gotext import join_host_port

if TYPE_CHECKING:
    import ssl

    import aiohttp

NOT_FOUND = 404
OK = 200
UNKNOWN_TOPIC = b"TOPIC_NOT_FOUND"
ANSWER_SIZE_MAX = 16 << 20  # bytes: some 80,000 nsqd, or 200,000 topics
PROBE_TIMEOUT_S = 2.0
PROBE_SIZE = 64
SHOWN_SIZE = 100  # bytes of a foreign answer in an error
PROBED = {
    "nsqd": "this is the TCP port of an nsqd; give it as nsqd=, or nsqlookupd's HTTP port (4161 as a rule)",
    "nsqlookupd": "this is nsqlookupd's TCP port; give its HTTP port (4161 as a rule)",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one nsqlookupd."""

    url: str
    addresses: frozenset[str] = frozenset()
    is_known: bool = True  # whether it knows the topic
    error: ConnectError | None = None


def lookup_url(address: str, topic: str) -> str:
    """Make a URL from `host:port` or a URL; an empty path becomes /lookup, any other is kept, and so is a query."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if parts.scheme not in {"http", "https"}:
        raise OptionsError(
            f"{address!r}: nsqlookupd is asked over HTTP; say host:port (4161 as a rule), without {parts.scheme}://"
        )
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or port is None:
        raise OptionsError(
            f"{address!r}: an address of nsqlookupd is host:port; missing port (its HTTP port is 4161 as a rule)"
        )
    path = "/lookup" if parts.path in {"", "/"} else parts.path
    query = "&".join(filter(None, [parts.query, f"topic={quote(topic, safe='')}"]))
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def read_object(reply: bytes, *, is_bare: bool) -> dict[str, Any]:
    """The object in an answer, which an old release wraps in an envelope; ConnectError if there is none."""
    try:
        answer = orjson.loads(reply)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and not is_bare:
        answer = answer.get("data", answer)
    if not isinstance(answer, dict):
        raise ConnectError(f"not an answer of NSQ: {reply[:SHOWN_SIZE]!r}")
    return answer


def addresses_in(
    reply: bytes, logger: Logger = log, *, is_bare: bool, port: str = "tcp_port"
) -> set[str]:
    """The `host:port` of every producer."""
    try:
        found = read_object(reply, is_bare=is_bare)
        addresses = {_address(producer, port) for producer in found.get("producers") or ()}
    except (ConnectError, KeyError, TypeError):
        raise ConnectError(f"not an answer of nsqlookupd: {reply[:SHOWN_SIZE]!r}") from None
    return {address for address in addresses if _is_usable(address, logger)}


def _address(producer: dict[str, Any], port: str) -> str:
    host, number = producer["broadcast_address"], producer[port]
    if type(host) is not str or type(number) is not int:
        raise TypeError
    return join_host_port(host, number)


def _is_usable(address: str, logger: Logger) -> bool:
    """Whether this address can be connected to. An nsqd that listens on a Unix socket, for example, reports port -1."""
    try:
        check_address(address)
    except OptionsError:
        logger.warning("nsqlookupd lists %r, which is left out: no address of an nsqd", address)
        return False
    return True


def poll_pause_s(config: Config, chance: Callable[[], float] = random.random) -> float:
    """Time until the next poll: at most the interval, shortened by up to the jitter, so that consumers spread out."""
    return seconds(config.lookupd_poll_interval) * (1 - config.lookupd_poll_jitter * chance())


def open_session(
    timeout: "aiohttp.ClientTimeout", headers: Mapping[str, str] | None = None
) -> "aiohttp.ClientSession":
    """A session for questions to NSQ's daemons; read their answers with `read_answer`."""
    import aiohttp

    # Nothing is unpacked, so that a small answer cannot become a large one.
    plain = {"Accept": "application/vnd.nsq; version=1.0", "Accept-Encoding": "identity"}
    return aiohttp.ClientSession(
        headers=plain | dict(headers or {}), timeout=timeout, auto_decompress=False
    )


class Reply(NamedTuple):
    """An answer with any status."""

    status: int
    body: bytes
    is_bare: bool  # not in the envelope of old releases


async def ask(
    session: "aiohttp.ClientSession",
    url: str,
    tls: "ssl.SSLContext | None",
    size_max: int = ANSWER_SIZE_MAX,
) -> Reply:
    """GET; aiohttp's errors, or ConnectError of `read_answer`. Without `tls`, what the system trusts."""
    async with session.get(url, ssl=tls or True) as response:
        body = await read_answer(response, size_max)
        is_bare = response.headers.get("X-NSQ-Content-Type") == "nsq; version=1.0"
        return Reply(response.status, body, is_bare)


async def read_answer(response: "aiohttp.ClientResponse", size_max: int = ANSWER_SIZE_MAX) -> bytes:
    """The body; ConnectError if it has more bytes than that, or is packed."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise ConnectError(f"the answer is packed ({encoding!r}), which nobody asked for")
    answer = bytearray()
    async for piece in response.content.iter_any():
        answer += piece
        if len(answer) > size_max:
            raise ConnectError(f"the answer has more than {size_max} bytes")
    return bytes(answer)


class Discovery:
    """The nsqlookupd of one consumer."""

    def __init__(
        self, addresses: Sequence[str], topic: str, config: Config, logger: Logger = log
    ) -> None:
        self._topic = topic
        self._config = config
        self._tls: ssl.SSLContext | None = None  # None = what the system trusts
        self._urls: list[str] = []
        for address in addresses:
            self.add(address)
        self._log = logger
        self._headers: dict[str, str] = {}
        # Named the wrong way round in go-nsq: true sends the header.
        if config.auth_secret and config.skip_lookupd_authorization:
            self._headers["Authorization"] = f"Bearer {config.auth_secret}"
        self._timeout_s = seconds(config.lookupd_poll_timeout)
        self._session: aiohttp.ClientSession | None = None

    def __len__(self) -> int:
        return len(self._urls)

    def add(self, address: str) -> None:
        """Ask one more, from the next poll on; OptionsError if this cannot be an address."""
        url = lookup_url(address, self._topic)
        if url.startswith("https:") and self._tls is None:
            self._tls = lookupd_context(self._config)
        if url not in self._urls:
            self._urls.append(url)

    def drop(self, address: str) -> None:
        """Stop asking it; OptionsError if it is unknown."""
        url = lookup_url(address, self._topic)
        if url not in self._urls:
            raise OptionsError(f"{address!r} is none of this consumer's nsqlookupd")
        self._urls.remove(url)

    async def poll(self) -> AsyncIterator[Answer]:
        """Yield each nsqlookupd's answer as it arrives."""
        import aiohttp

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._timeout_s or None)
            self._session = open_session(timeout, self._headers)
        tasks = [asyncio.ensure_future(self._ask(self._session, url)) for url in self._urls]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()

    async def _ask(self, session: "aiohttp.ClientSession", url: str) -> Answer:
        import aiohttp

        try:
            status, reply, is_bare = await ask(session, url, self._tls)
            if status == NOT_FOUND:
                await self._check_unknown(session, url, reply)
                return Answer(url, is_known=False)
            if status != OK:
                return Answer(url, error=ConnectError(f"{url}: {status} {reply[:SHOWN_SIZE]!r}"))
            return Answer(url, frozenset(addresses_in(reply, self._log, is_bare=is_bare)))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            is_connected = not isinstance(error, aiohttp.ClientConnectorError | TimeoutError)
            wrong = PROBED.get(await probe(url), "") if is_connected else ""
            text = f"{url}: {wrong or error or type(error).__name__}"
            return Answer(url, error=WrongPeerError(text) if wrong else ConnectError(text))
        except ConnectError as error:
            return Answer(url, error=type(error)(f"{url}: {error}"))

    async def _check_unknown(
        self, session: "aiohttp.ClientSession", url: str, reply: bytes
    ) -> None:
        """Find out whether nsqlookupd does not know the topic, or another service without such a page answered."""
        if UNKNOWN_TOPIC in reply:
            return
        parts = urlsplit(url)
        info_url = urlunsplit((parts.scheme, parts.netloc, "/info", "", ""))
        status, info, _ = await ask(session, info_url, self._tls)
        if status == OK and b'"tcp_port"' in info:
            raise WrongPeerError(
                "this is the HTTP port of an nsqd, not an nsqlookupd; give nsqd's TCP port (4150 as a rule) "
                "as nsqd=, or nsqlookupd's HTTP port (4161)"
            )
        raise ConnectError(
            f"{NOT_FOUND} {reply[:SHOWN_SIZE]!r}: is this the HTTP port of an nsqlookupd?"
        )

    async def close(self) -> None:
        """Close the connections kept open for the next poll."""
        if self._session is not None:
            await self._session.close()
            self._session = None


async def probe(url: str) -> str:
    """Whose TCP port this is: "nsqd" or "nsqlookupd"; '' if its answer is not recognised.

    nsqd and nsqlookupd refuse four bytes that are not a magic, each in its own framing.
    """
    parts = urlsplit(url)
    if parts.scheme != "http":
        return ""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write(b"GET ")
                # The answer may come in pieces; both close the connection after it.
                said = await reader.readexactly(PROBE_SIZE)
            finally:
                writer.close()
    except asyncio.IncompleteReadError as error:
        said = error.partial
    except (OSError, TimeoutError):
        return ""
    place = said.find(b"E_BAD_PROTOCOL")
    return {8: "nsqd", 4: "nsqlookupd"}.get(place, "")
