"""Which nsqd have a topic: nsqlookupd's /lookup (spec nsqlookupd §4, client §3.1).

go-nsq asks one nsqlookupd per poll, in turn. Here all are asked at once, and what each of them says counts as it comes:
a slow or dead one delays nothing, and a node that only one of them knows is found by the first poll.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

import orjson

from nsqfast.client.config import Config, seconds
from nsqfast.client.connection import check_address
from nsqfast.errors import ConnectError, OptionsError
from nsqfast.net.addresses import format_address

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger("nsqfast.client")

NOT_FOUND = 404
OK = 200


def lookup_url(address: str, topic: str) -> str:
    """From `host:port` or a URL; an empty path is /lookup, any other is kept, and so is a query."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or port is None:
        raise OptionsError(f"{address!r}: an address of nsqlookupd is host:port; missing port")
    path = "/lookup" if parts.path in {"", "/"} else parts.path
    query = "&".join(filter(None, [parts.query, f"topic={quote(topic, safe='')}"]))
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def addresses_in(reply: bytes, *, is_bare: bool) -> set[str]:
    """The `host:port` of every producer; an old nsqlookupd wraps its answer in an envelope."""
    try:
        answer = orjson.loads(reply)
        found = answer if is_bare else answer.get("data", answer)
        addresses = {_address(producer) for producer in found.get("producers") or ()}
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ConnectError(f"not an answer of nsqlookupd: {reply[:100]!r}") from None
    return {address for address in addresses if _is_usable(address)}


def _address(producer: dict[str, Any]) -> str:
    host, port = producer["broadcast_address"], producer["tcp_port"]
    if type(host) is not str or type(port) is not int:
        raise TypeError
    return format_address((host, port))


def _is_usable(address: str) -> bool:
    """An nsqd that listens on a Unix socket says that its port is -1, for example."""
    try:
        check_address(address)
    except OptionsError:
        log.warning("nsqlookupd lists %r, which is left out: no address of an nsqd", address)
        return False
    return True


def poll_pause_s(config: Config, chance: Callable[[], float] = random.random) -> float:
    """Until the next poll: at most the interval, shorter by up to the jitter, so that consumers spread."""
    return seconds(config.lookupd_poll_interval) * (1 - config.lookupd_poll_jitter * chance())


class Discovery:
    """The nsqlookupd of one consumer."""

    def __init__(self, addresses: Sequence[str], topic: str, config: Config) -> None:
        self._urls = [lookup_url(address, topic) for address in addresses]
        self._headers = {"Accept": "application/vnd.nsq; version=1.0"}
        # Named the wrong way round in go-nsq: true means that the header is sent.
        if config.auth_secret and config.skip_lookupd_authorization:
            self._headers["Authorization"] = f"Bearer {config.auth_secret}"
        self._timeout_s = seconds(config.lookupd_poll_timeout)
        self._session: aiohttp.ClientSession | None = None

    async def poll(self) -> AsyncIterator[set[str] | ConnectError]:
        """What each nsqlookupd says, as it comes: addresses, or why there are none."""
        import aiohttp

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._timeout_s or None)
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        tasks = [asyncio.ensure_future(self._ask(self._session, url)) for url in self._urls]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()

    async def _ask(self, session: "aiohttp.ClientSession", url: str) -> set[str] | ConnectError:
        import aiohttp

        try:
            async with session.get(url) as response:
                reply = await response.read()
                if response.status == NOT_FOUND:
                    return set()  # the topic is not known there yet
                if response.status != OK:
                    return ConnectError(f"{url}: {response.status} {reply[:100]!r}")
                is_bare = response.headers.get("X-NSQ-Content-Type") == "nsq; version=1.0"
                return addresses_in(reply, is_bare=is_bare)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return ConnectError(f"{url}: {error or type(error).__name__}")
        except ConnectError as error:
            return ConnectError(f"{url}: {error}")

    async def close(self) -> None:
        """Close what is kept open for the next poll."""
        if self._session is not None:
            await self._session.close()
            self._session = None
