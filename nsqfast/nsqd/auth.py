"""Grants: what an auth server says that a client may do, and asking for it (spec nsqd-tcp §11).

Grants are read as strictly as NSQ reads them. Regular expressions are RE2's: they take linear time, whatever an auth
server sends. They match anywhere in a name, so `^` and `$` must be written where they are meant.
"""

import asyncio
import json
import logging
import random
import ssl
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from traceback import format_tb
from typing import Any, Protocol
from urllib.parse import urlencode
from weakref import WeakValueDictionary

import aiohttp
import re2
from yarl import URL

from nsqfast._ext.core.usage import Usage
from nsqfast.errors import NsqfastError
from nsqfast.net.addresses import place_of
from nsqfast.net.http_reply import encode_json
from nsqfast.net.tls import client_context
from nsqfast.nsqd.options import Options
from nsqfast.version import NSQ_VERSION
from nsqfast.wire.gotext import INT64_MAX, os_error
from nsqfast.wire.refusals import REFUSED

log = logging.getLogger("nsqd")

PUBLISH, SUBSCRIBE = "publish", "subscribe"
EVERYTHING = ".*"

# A grant is kept no longer than this; longer times would not fit into nanoseconds.
TTL_S_MAX = 1_000_000_000
# More is no limit; a message's share of a second is counted in nanoseconds.
RATE_MAX = 1_000_000_000
DECISIONS_MAX = 1024  # remembered per grant
PATTERNS_MAX = 1024  # compiled ones, of all grants

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True


class AuthError(NsqfastError):
    """No auth server gave a good answer; `is_refused` if one of them answered that it does not know the secret."""

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused


@lru_cache(maxsize=PATTERNS_MAX)
def compile_pattern(text: str) -> Any:
    """Compile an expression; AuthError if it is invalid."""
    try:
        return re2.compile(text, _OPTIONS)
    except re2.error:
        raise AuthError("a regular expression that does not compile") from None


class Authorization:
    """One entry of an answer; AuthError if it cannot be honoured."""

    __slots__ = ("_channels", "_permissions", "_topic", "is_for_everything")

    def __init__(self, topic: str, channels: list[str], permissions: list[str]) -> None:
        if not {PUBLISH, SUBSCRIBE}.issuperset(permissions):
            raise AuthError("a permission that is neither publish nor subscribe")
        self._permissions = frozenset(permissions)
        self._topic = compile_pattern(topic)
        self._channels = [compile_pattern(channel) for channel in channels]
        self.is_for_everything = (
            topic == EVERYTHING and EVERYTHING in channels and len(self._permissions) == 2
        )

    def allows(self, topic: str, channel: str) -> bool:
        """Whether it allows subscribing to a channel or, if `channel` is empty, publishing: then one of the channels
        must match ''.
        """
        return (
            (SUBSCRIBE if channel else PUBLISH) in self._permissions
            and self._topic.search(topic) is not None
            and any(pattern.search(channel) is not None for pattern in self._channels)
        )


class Grant:
    """A client's identity and permissions, valid for `ttl_ns` from the arrival of the answer."""

    __slots__ = (
        "_decisions",
        "authorizations",
        "connections_max",
        "identity",
        "identity_url",
        "rate_max",
        "ttl_ns",
        "usage",
    )

    def __init__(
        self, ttl_s: int, identity: str, identity_url: str, authorizations: list[Authorization]
    ) -> None:
        self.connections_max = self.rate_max = 0  # of all who have this identity; 0 = any number
        self.usage: Usage | None = None  # what they use together; None = it has no limits
        self.ttl_ns = min(ttl_s, TTL_S_MAX) * 1_000_000_000
        self.identity = identity
        self.identity_url = identity_url
        self.authorizations = authorizations
        self._decisions: dict[tuple[str, str], bool] = {}

    def allows(self, topic: str, channel: str) -> bool:
        """Whether any one authorization suffices; `channel` is empty for publishing."""
        known = self._decisions.get((topic, channel))
        if known is not None:
            return known
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        found = any(entry.allows(topic, channel) for entry in self.authorizations)
        self._decisions[topic, channel] = found
        return found

    def allows_everything(self) -> bool:
        """Whether one authorization says so literally: both permissions, and `.*` as topic and as a channel."""
        return any(entry.is_for_everything for entry in self.authorizations)

    def answer(self) -> bytes:
        """The data of the response to AUTH."""
        return encode_json(
            {
                "identity": self.identity,
                "identity_url": self.identity_url,
                "permission_count": len(self.authorizations),
            }
        )


def read_grant(body: bytes) -> Grant:
    """Read the JSON of an auth server; AuthError says what is wrong with it, without quoting it."""
    try:
        text = body.decode("utf-8", "replace")
        given = json.loads(text, parse_constant=_refuse, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        raise AuthError("an answer that is not JSON") from None
    found = _Fields(given)
    authorizations = [
        Authorization(
            entry.text("topic"),
            [_text(channel) for channel in entry.items("channels")],
            [_text(permission) for permission in entry.items("permissions")],
        )
        for entry in map(_Fields, found.items("authorizations"))
    ]
    ttl_s = found.number("ttl")
    if ttl_s <= 0:
        raise AuthError("a ttl that is not greater than 0")
    grant = Grant(ttl_s, found.text("identity"), found.text("identity_url"), authorizations)
    grant.connections_max = found.number("max_connections")
    grant.rate_max = min(found.number("max_rate"), RATE_MAX)
    if grant.connections_max < 0 or grant.rate_max < 0:
        raise AuthError("a max_connections or max_rate below 0")
    return grant


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Read an object as Go's decoder does: keys in any case, the last one that is not null wins."""
    return {key.lower(): value for key, value in pairs if value is not None}


class _Fields:
    """An object's members; absent ones have their type's default."""

    def __init__(self, given: object) -> None:
        given = {} if given is None else given
        if not isinstance(given, dict):
            raise _wrong_type()
        self._values = given

    def text(self, name: str) -> str:
        return _text(self._values.get(name))

    def number(self, name: str) -> int:
        value = self._values.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > INT64_MAX:
            raise _wrong_type()
        return value

    def items(self, name: str) -> list[Any]:
        value = self._values.get(name, [])
        if not isinstance(value, list):
            raise _wrong_type()
        return value


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong_type()
    # Half a surrogate pair becomes U+FFFD, as in Go.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _wrong_type() -> AuthError:
    return AuthError("an answer whose fields have the wrong types")


def _refuse(constant: str) -> float:
    raise ValueError(constant)


# Asks auth servers over HTTP (spec nsqd-tcp §11): a random one first, then the others in turn until one answers well.
# At most QUERIES_MAX queries run at a time; --http-client-request-timeout includes the wait for a free place. Log lines
# name servers and reasons, but never a secret, nor a URL, which may contain one.

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


MINUTE_S = 60.0
ADDRESSES_MAX = 4096
SECRETS_MAX = 4096


class Attempts:
    """Wrong secrets, by the address that sent them: whoever guesses is refused, and no auth server is asked for him.

    So many a minute for each address, or 0 for any number. A secret that was good before is asked for
    all the same: others may share the address.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._wrong: OrderedDict[str, tuple[float, float]] = OrderedDict()  # (how many, when)
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def are_spent(self, address: str, secret: bytes) -> bool:
        """Whether this secret is not to be asked for now."""
        if not self._count_max or sha256(secret).digest() in self._good:
            return False
        return self._count(_network(address)) >= self._count_max

    def note(self, address: str, secret: bytes, *, is_good: bool) -> None:
        """Remember what an auth server said of it."""
        if is_good:
            _remember(self._good, sha256(secret).digest(), None, SECRETS_MAX)
        elif self._count_max:
            place = _network(address)
            counted = self._count(place) + 1, time.monotonic()
            _remember(self._wrong, place, counted, ADDRESSES_MAX)

    def _count(self, place: str) -> float:
        """Of the last minute, about: they are forgotten at an even pace."""
        count, noted_s = self._wrong.get(place, (0.0, 0.0))
        forgotten = (time.monotonic() - noted_s) * self._count_max / MINUTE_S
        return max(0.0, count - forgotten)


def _remember(table: OrderedDict[Any, Any], key: Any, value: Any, size_max: int) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > size_max:
        table.popitem(last=False)


def _network(address: str) -> str:
    """The address; of version 6, the /64 that a single customer usually has."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address  # '' for a Unix socket
    return address if parsed.version == 4 else str(int(parsed) >> 64)
