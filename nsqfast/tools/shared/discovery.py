"""Queries of tools to nsqlookupd and nsqd over HTTP."""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode, urlsplit

from nsqfast.client.discovery import ANSWER_SIZE_MAX, OK, SHOWN_SIZE, ask, open_session, read_object
from nsqfast.errors import ConnectError
from nsqfast.program.options import PlainError
from nsqfast.wire.gotext import os_error
from nsqfast.wire.names import is_valid_name

if TYPE_CHECKING:
    import ssl

    import aiohttp


def base_url(address: str, flag: str) -> str:
    """`http://host:port` from `host:port` or a URL; PlainError names the flag."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port:
        missing = "missing port" if port is None else "it is host:port"
        raise PlainError(f"{flag}: address {address}: {missing}")
    return f"{parts.scheme}://{parts.netloc}"


class AnswerError(ConnectError):
    """A daemon answered with another `status` than 200."""

    def __init__(self, url: str, status: int, body: bytes) -> None:
        super().__init__(f"{url}: {status} {body[:SHOWN_SIZE]!r}")
        self.status = status
        self.body = body


class HttpClient:
    """Queries the daemons of a cluster; every failure is a ConnectError that begins with the URL."""

    def __init__(
        self,
        connect_timeout_s: float,
        request_timeout_s: float,
        tls: "ssl.SSLContext | None" = None,
    ) -> None:
        self._tls = tls  # of https:// URLs; None = what the system trusts
        self._connect_timeout_s = connect_timeout_s or None
        self._request_timeout_s = request_timeout_s or None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        place: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections kept for the next query."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(
        self,
        base: str,
        path: str,
        query: Mapping[str, str] | None = None,
        size_max: int = ANSWER_SIZE_MAX,
    ) -> dict[str, Any]:
        """The object in the answer of the daemon at `base`; an old release may wrap it in an envelope."""
        # Imported late: it takes a moment, and --help and wrong flags do not need it.
        import aiohttp

        url = f"{base}{path}" + (f"?{urlencode(query)}" if query else "")
        if self._session is None:
            timeout = aiohttp.ClientTimeout(
                total=self._request_timeout_s, connect=self._connect_timeout_s
            )
            self._session = open_session(timeout)
        try:
            status, body, is_bare = await ask(self._session, url, self._tls, size_max)
            if status == OK:
                return read_object(body, is_bare=is_bare)
        except (aiohttp.ClientError, ConnectError, TimeoutError, OSError) as error:
            raise ConnectError(f"{url}: {_reason(error)}") from None
        raise AnswerError(url, status, body)


def _reason(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorError):
        return f"connect: {os_error(error.os_error)}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__


async def list_topics(
    client: HttpClient, lookupds: Sequence[str]
) -> tuple[set[str], list[ConnectError]]:
    """The topics that any nsqlookupd (a base URL) knows, and the errors of the others."""
    answers = await asyncio.gather(
        *[client.get(base, "/topics") for base in lookupds], return_exceptions=True
    )
    topics: set[str] = set()
    errors: list[ConnectError] = []
    for base, answer in zip(lookupds, answers, strict=True):
        if isinstance(answer, ConnectError):
            errors.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        elif isinstance(listed := answer.get("topics") or [], list):
            topics.update(filter(_is_topic, listed))
        else:
            errors.append(ConnectError(f"{base}/topics: a list was expected, not {listed!r:.80}"))
    return topics, errors


def _is_topic(name: object) -> bool:
    return isinstance(name, str) and is_valid_name(name)
