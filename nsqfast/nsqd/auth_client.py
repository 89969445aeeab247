"""Asks auth servers over HTTP (spec nsqd-tcp §11): a random one first, then the others in turn until one answers well.

At most QUERIES_MAX queries run at a time; --http-client-request-timeout includes the wait for a free place. Log lines
name servers and reasons, but never a secret, nor a URL, which may contain one.
"""

import asyncio
import json
import logging
import random
import ssl
from collections import deque
from collections.abc import Callable
from traceback import format_tb
from typing import Any, Protocol
from urllib.parse import urlencode
from weakref import WeakValueDictionary

import aiohttp
from yarl import URL

from nsqfast._ext.core.usage import Usage
from nsqfast.net.http_reply import encode_json
from nsqfast.net.masks import place_of
from nsqfast.net.tls import client_context
from nsqfast.nsqd.auth import AuthError, Grant, read_grant
from nsqfast.nsqd.auth_attempts import Attempts
from nsqfast.nsqd.options import Options
from nsqfast.version import NSQ_VERSION
from nsqfast.wire.gotext import os_error
from nsqfast.wire.refusals import REFUSED

log = logging.getLogger("nsqd")

QUERIES_MAX = 128
ANSWER_SIZE_MAX = 1024 * 1024
REDIRECTS_MAX = 10
NS = 1e9

HEADERS = {
    "Accept": "application/vnd.nsq; version=1.0",
    "Accept-Encoding": "identity",  # no answer is decompressed, so none can expand
    "User-Agent": f"nsqd/{NSQ_VERSION}",
}
REFUSALS = (401, 403, 404)
USAGES_KEPT = (
    1024  # for identities of which nobody is connected: a new connection does not begin anew
)
TOO_MANY = (
    "too many wrong secrets from this address in the last minute: --max-auth-failures allows more"
)


class Client(Protocol):
    """The client that sent a secret, as described to the auth servers."""

    remote_address: str
    remote_host: str  # '' for a Unix socket
    tls: bool
    common_name: str


Answer = tuple[Grant | None, bool]  # and whether an auth server refused


class AuthClient:
    """Created on the loop that uses it; close it once."""

    def __init__(self, options: Options) -> None:
        self._addresses = options.auth_http_addresses
        self._is_post = options.auth_http_request_method == "post"
        self._connect_timeout_s = options.http_client_connect_timeout_ns / NS or None
        context = client_context(options.tls_root_ca_file, options.tls_min_version)
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=QUERIES_MAX, ssl=context),
            timeout=aiohttp.ClientTimeout(
                total=options.http_client_request_timeout_ns / NS or None,
                sock_connect=self._connect_timeout_s,
            ),
            headers=HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._usages: WeakValueDictionary[str, Usage] = WeakValueDictionary()
        self._recent: deque[Usage] = deque(maxlen=USAGES_KEPT)
        self._attempts = Attempts(options.max_auth_failures)

    def begin(self) -> None:
        """Warn of servers that cannot be reached now; nobody waits for it."""
        loop = asyncio.get_running_loop()
        for address in self._addresses:
            task = loop.create_task(self._warn_if_down(address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _warn_if_down(self, address: str) -> None:
        try:
            url = URL(_url_of(address), encoded=True)
            async with asyncio.timeout(self._connect_timeout_s):
                _, writer = await asyncio.open_connection(url.host, url.port)
        except TimeoutError:
            reason = "timeout"
        except OSError as error:
            reason = _plain_reason(error)
        except (TypeError, ValueError):  # it is no URL, or one without a port
            reason = "it is no URL"
        else:
            writer.close()
            return
        log.warning(
            "AUTH: cannot reach %s - %s: until one of --auth-http-address answers, "
            "clients get E_AUTH_FAILED and are disconnected",
            place_of(address),
            reason,
        )

    def ask(
        self, client: Client, secret: bytes, on_answer: Callable[[Grant | None, bool], None]
    ) -> asyncio.Task[Answer]:
        """Query the servers, then call `on_answer`, with None if none of them gave a good answer, and whether one of
        them refused. A cancelled task does not call it.
        """
        task = asyncio.get_running_loop().create_task(self._answer(client, secret))

        def tell(done: asyncio.Task[Answer]) -> None:
            self._tasks.discard(done)
            if not done.cancelled():
                on_answer(*done.result())

        self._tasks.add(task)
        task.add_done_callback(tell)
        return task

    async def _answer(self, client: Client, secret: bytes) -> Answer:
        try:
            grant = await self.query(secret, client.remote_host, client.tls, client.common_name)
        except AuthError as error:
            log.warning("PROTOCOL(V2): [%s] AUTH failed %s", client.remote_address, error)
            return None, error.is_refused
        return grant, False

    async def query(self, secret: bytes, remote_host: str, is_tls: bool, name: str) -> Grant:
        """The first good answer; AuthError with all reasons if there is none, or for an address that guesses."""
        if self._attempts.are_spent(remote_host, secret):
            REFUSED["wrong_secrets"] += 1
            raise AuthError(TOO_MANY, is_refused=True)
        try:
            grant = await self._ask_servers(secret, remote_host, is_tls, name)
        except AuthError as error:
            if error.is_refused:
                self._attempts.note(remote_host, secret, is_good=False)
            raise
        self._attempts.note(remote_host, secret, is_good=bool(grant.authorizations))
        grant.usage = self._usage(grant)
        return grant

    def _usage(self, grant: Grant) -> Usage | None:
        """What all who have this identity use, under the limits of the latest answer."""
        usage = self._usages.get(grant.identity)
        if usage is None:
            if not (grant.connections_max or grant.rate_max):
                return None
            usage = self._usages[grant.identity] = Usage()
        usage.connections_max, usage.rate_max = grant.connections_max, grant.rate_max
        self._recent.append(usage)
        return usage

    async def _ask_servers(self, secret: bytes, remote_host: str, is_tls: bool, name: str) -> Grant:
        fields = {
            "common_name": name.encode("utf-8", "surrogateescape"),
            "remote_ip": remote_host.encode(),
            "secret": secret,
            "tls": b"true" if is_tls else b"false",
        }
        start = random.randrange(len(self._addresses))  # noqa: S311 - spreads load
        reasons = []
        is_refused = False
        for address in self._addresses[start:] + self._addresses[:start]:
            try:
                return read_grant(await self._ask_server(address, fields))
            except AuthError as error:
                is_refused = is_refused or error.is_refused
                reasons.append(f"failed to auth against {place_of(address)} - {error}")
            except Exception as error:
                # The place and type of the error, but not its text: that may contain the URL, and with it the secret.
                place = "".join(format_tb(error.__traceback__))
                log.error("AUTH: unexpected %s\n%s", type(error).__name__, place)  # noqa: TRY400
                reasons.append(f"failed to auth against {place_of(address)}")
        raise AuthError("; ".join(reasons), is_refused=is_refused)

    async def _ask_server(self, address: str, fields: dict[str, bytes]) -> bytes:
        url = _url_of(address)
        body = _post_body(fields) if self._is_post else None
        if body is None:
            url = f"{url}?{urlencode(fields)}"
        try:
            status, answer = await self._request(URL(url, encoded=True), body)
            if status == 403 and not url.startswith("https"):
                status, answer = await self._request(
                    _on_https(URL(url, encoded=True), answer), body
                )
        except TimeoutError:
            raise AuthError("timeout") from None
        except OSError as error:
            raise AuthError(_plain_reason(error)) from None
        except (aiohttp.ClientError, ValueError) as error:
            # Also without its text.
            raise AuthError(type(error).__name__) from None
        if status != 200:
            raise AuthError(f"got response {status}", is_refused=status in REFUSALS)
        return answer

    async def _request(self, url: URL, body: bytes | None) -> tuple[int, bytes]:
        """Status and body."""
        async with self._http.request(
            "GET" if body is None else "POST",
            url,
            data=body,
            headers=None if body is None else {"Content-Type": "application/json"},
            max_redirects=REDIRECTS_MAX,
        ) as response:
            answer = bytearray()
            async for piece in response.content.iter_any():
                answer += piece
                if len(answer) > ANSWER_SIZE_MAX:
                    raise AuthError("an answer that is too large")
            return response.status, bytes(answer)

    async def close(self) -> None:
        """Stop querying; waiting callers are not notified."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.close()


def _url_of(address: str) -> str:
    return address if "://" in address else f"http://{address}/auth"


def _post_body(fields: dict[str, bytes]) -> bytes:
    """A form as NSQ sends it: each key with a list of one."""
    return encode_json({key: [_replaced(value)] for key, value in fields.items()})


def _replaced(value: bytes) -> str:
    """Replace each byte that is not UTF-8 by U+FFFD, as in Go."""
    text = value.decode("utf-8", "surrogateescape")
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


def _on_https(url: URL, answer: bytes) -> URL:
    """The HTTPS address that a server which insists on TLS named."""
    try:
        port = json.loads(answer)["https_port"]
    except (ValueError, TypeError, KeyError, RecursionError):
        port = None
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise AuthError("got response 403", is_refused=True)
    return url.with_scheme("https").with_port(port)


def _plain_reason(error: OSError) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ssl.SSLError):
        return (
            f"TLS: {getattr(cause, 'verify_message', '') or cause.reason or type(cause).__name__}"
        )
    return os_error(cause) if cause.errno else type(cause).__name__
