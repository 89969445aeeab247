"""One HTTP client for all nsqd and nsqlookupd: time limits, the switch to HTTPS, errors that name their cause."""

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec

from nsqfast.errors import OptionsError
from nsqfast.net import secret_file
from nsqfast.net.addresses import PORT_MAX
from nsqfast.net.http_client import BrokenError, ClientLimits, HttpClient, UnreachableError
from nsqfast.net.http_target import Origin, parse_target
from nsqfast.net.tls import load_certificate
from nsqfast.nsqadmin.checks import TLS, proves_nodes
from nsqfast.nsqadmin.cluster.answers import UpstreamError, decode, decode_in_slices
from nsqfast.nsqadmin.cluster.body import Body, Budget
from nsqfast.nsqadmin.options import Options
from nsqfast.wire import gotext, names
from nsqfast.wire.gotext import os_error

__all__ = ["Upstream", "UpstreamError", "tls_context"]

T = TypeVar("T")

HEADERS = {
    "Accept": "application/vnd.nsq; version=1.0",
    "Accept-Encoding": "identity",  # what a few packed bytes become has no bound
    "User-Agent": "nsqadmin",
}
HEADER_LINES = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
# A command is sent once, over a connection of its own: the end of an idle one looks like a refusal.
COMMAND_LINES = f"{HEADER_LINES}Content-Type: application/octet-stream\r\nConnection: close\r\n"
CONNECTIONS_PER_HOST = 4
IDLE_S = 30.0  # more than three polls of a cluster without viewers
ORIGINS_KEPT = 4096  # the parsed addresses of a large cluster
SMALL_SIZE_MAX = 16 << 10  # decoded at once: less than 0.1 ms
SHOWN_SIZE_MAX = 1024  # of an error's body
# A node says what its address is: no other character may become a part of a URL.
ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]):([0-9]{1,5})")
ADDRESS_SIZE_MAX = 300  # a name has at most 253 characters
SECRET = re.compile(r"[\x21-\x7e]*")
NSQ_WORD = re.compile(r'got response (\d+) [^"]*"\{\\"message\\":\\"([A-Z_]+)\\"\}"$')
PLAIN_PATH = re.compile(r"/[\x21-\x7e]*")


class Answer(NamedTuple):
    """An answer with any status; the names of its headers are in lower case."""

    status: int
    reason: str
    body: Body
    headers: Mapping[bytes, bytes] = {}


class Upstream:
    """Opened once with the server, closed with it."""

    def __init__(self, options: Options) -> None:
        self.asked_count = 0
        self.failed_count = 0  # failed ones: no answer, or an error
        self._options = options
        self._secret = read_secret(options)
        self._turn = asyncio.Lock()
        self._budget = Budget()
        limits = ClientLimits(
            options.http_client_connect_timeout_ns / 1e9,
            options.http_client_request_timeout_ns / 1e9,
            IDLE_S,
            connections_max=CONNECTIONS_PER_HOST,
        )
        context = tls_context(options)
        self._reader = HttpClient(limits, context)
        self._writer = HttpClient(replace(limits, idle_s=0.0), context)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def reload(self) -> None:
        """Read the secret again; OptionsError."""
        self._secret = read_secret(self._options)

    def secret_for(self, *, is_tls: bool) -> str:
        """What an nsqd is told, or '': anybody may have registered as one at nsqlookupd, and listens on the way."""
        is_configured = not self._options.nsqlookupd_http_addresses
        return self._secret if is_configured or (is_tls and proves_nodes(self._options)) else ""

    def _authorization(self, address: str, *, is_tls: bool) -> dict[str, str]:
        if address in self._options.nsqlookupd_http_addresses:
            return {}
        secret = self.secret_for(is_tls=is_tls)
        return {"Authorization": f"Bearer {secret}"} if secret else {}

    async def get(self, address: str, path: str) -> Body:
        """The body of http://ADDRESS/PATH; UpstreamError for anything but status 200."""
        return await self._ask("GET", address, path, b"")

    async def post(self, address: str, path: str, body: bytes = b"") -> Body:
        """Like `get`; over a connection of its own, and never sent twice."""
        return await self._ask("POST", address, path, body)

    async def command(self, method: str, address: str, path: str, body: bytes) -> Body:
        """Like `post`, by another method."""
        return await self._ask(method, address, path, body)

    async def get_url(self, url: str) -> Body:
        """Like `get`, with a whole URL, for servers that are not nodes."""
        given = await self.get_whole(url, {})
        return _checked(url, given)

    async def get_whole(self, url: str, headers: Mapping[str, str]) -> Answer:
        """The answer, whatever its status."""
        return await self._send("GET", url, b"", headers)

    async def read(self, address: str, path: str, kind: type[T]) -> T:
        """The result of `get`, decoded as one of cluster.answers."""
        body = await self.get(address, path)
        try:
            if len(body) < SMALL_SIZE_MAX:
                return decode(body, kind)
            # A hundred nodes may answer in one turn of the loop: decode one of them per turn.
            async with self._turn:
                await asyncio.sleep(0)
                return await decode_in_slices(body, kind)
        except UpstreamError as error:
            url = _url(address, path)
            raise UpstreamError(f"{url}: {error}", message=error.message) from None

    async def _ask(self, method: str, address: str, path: str, body: bytes) -> Body:
        self.asked_count += 1
        try:
            return await self._ask_node(method, address, path, body)
        except UpstreamError:
            self.failed_count += 1
            raise

    async def _ask_node(self, method: str, address: str, path: str, body: bytes) -> Body:
        bare = address.removeprefix(TLS)
        if trouble := trouble_of(bare):
            raise UpstreamError(trouble)
        url, is_tls = _url(address, path), bare != address
        headers = self._authorization(address, is_tls=is_tls)
        if not is_tls and PLAIN_PATH.fullmatch(path):
            told = headers | {"Host": address}
            answer = await self._ask_origin(method, url, origin_of(address), path, body, told)
        else:
            answer = await self._send(method, url, body, headers)
        port = 0 if is_tls else _https_port(answer)
        if port:
            host = address.rpartition(":")[0]
            url = f"{TLS}{host}:{port}{path}"
            answer = await self._send(method, url, body, self._authorization(address, is_tls=True))
        return _checked(url, answer)

    async def _send(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        try:
            # Parts that are already quoted stay unchanged, in Graphite's targets, too.
            target = parse_target(url)
        except ValueError as error:
            raise _told(method, url, error) from None
        told = {"Host": target.host, **headers}
        if target.authorization:
            told.setdefault("Authorization", target.authorization)
        return await self._ask_origin(method, url, target.origin, target.path, body, told)

    async def _ask_origin(
        self,
        method: str,
        url: str,
        origin: Origin,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> Answer:
        client, lines = (
            (self._reader, HEADER_LINES)
            if method == "GET"
            else (self._writer, f"{COMMAND_LINES}Content-Length: {len(body)}\r\n")
        )
        more = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        given = Body(self._budget)
        try:
            request = f"{method} {path} HTTP/1.1\r\n{more}{lines}\r\n".encode("ascii") + body
            answer = await client.ask(origin, request, given, client.deadline_s())
            check_not_packed(answer.headers.get(b"content-encoding", b""))
            reason = answer.reason.decode("latin-1")
            return Answer(answer.status, reason, given.finish(), answer.headers)
        except BaseException as error:
            given.drop()
            if isinstance(error, BrokenError | UnreachableError | TimeoutError | ValueError):
                raise _told(method, url, error) from None
            raise


@lru_cache(maxsize=ORIGINS_KEPT)
def origin_of(address: str) -> Origin:
    """The plain HTTP server at HOST:PORT."""
    host, _, port = address.rpartition(":")
    return Origin(False, host.strip("[]"), int(port))


def check_not_packed(encoding: bytes) -> None:
    """BrokenError: an answer with this Content-Encoding is not read."""
    text = encoding.decode("latin-1").strip().lower()
    if text not in ("", "identity"):
        raise BrokenError(f"the answer is packed ({gotext.quote(text)}), which was not asked for")


def _url(address: str, path: str) -> str:
    return f"{address}{path}" if address.startswith(TLS) else f"http://{address}{path}"


def trouble_of(address: str) -> str:
    """Why nobody is asked at this address; '' if it is one."""
    found = ADDRESS.fullmatch(address[: ADDRESS_SIZE_MAX + 1])
    if found and len(address) <= ADDRESS_SIZE_MAX and 0 < int(found[1]) <= PORT_MAX:
        return ""
    return f"its address {gotext.quote(address[:ADDRESS_SIZE_MAX])} is no HOST:PORT, so it is not asked"


def _checked(url: str, answer: Answer) -> Body:
    if answer.status != 200:
        shown = names.quote(bytes(answer.body[:SHOWN_SIZE_MAX]))
        told = f"got response {answer.status} {answer.reason} {shown}"
        raise UpstreamError(f"{url}: {told}", answer.status, told)
    return answer.body


def _told(method: str, url: str, error: Exception) -> UpstreamError:
    """In our words, and in those of Go's HTTP client as far as the error allows."""
    cause = error.cause if isinstance(error, UnreachableError) else error
    ours = theirs = _words_of(cause)
    if cause is not error:
        theirs = f"dial tcp {url.split('/', 3)[2]}: {_dialled(cause, ours)}"
    elif ours == "no answer in time":
        theirs = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    return UpstreamError(
        f"{url}: {ours}", message=f"{method.title()} {gotext.quote(url)}: {theirs}"
    )


def _words_of(cause: Exception) -> str:
    if isinstance(cause, TimeoutError) and cause.errno is None:
        return "no answer in time"
    if isinstance(cause, ssl.SSLError):  # an OSError whose number is not the system's
        return f"tls: {getattr(cause, 'verify_message', '') or cause.reason or cause}"
    return os_error(cause) if isinstance(cause, OSError) else str(cause) or type(cause).__name__


def _dialled(cause: Exception, text: str) -> str:
    if isinstance(cause, TimeoutError):
        return "i/o timeout"
    return f"connect: {text}" if isinstance(cause, ConnectionRefusedError) else text


def cause_of(error: UpstreamError, url: str) -> str:
    """A short reason: nsqd's own words if there are any."""
    text = str(error).removeprefix(f"{url}: ")
    found = NSQ_WORD.search(text)
    return f"{found[1]} {found[2]}" if found else text


class _HttpsPort(msgspec.Struct):
    https_port: int = 0


def _https_port(answer: Answer) -> int:
    """nsqd with --tls-required answers 403 to HTTP and names the HTTPS port."""
    if answer.status != 403:
        return 0
    try:
        port = msgspec.json.decode(answer.body, type=_HttpsPort).https_port
    except (ValueError, RecursionError):
        return 0
    return port if 0 < port <= PORT_MAX else 0


def read_secret(options: Options) -> str:
    """That of --auth-secret-file; OptionsError."""
    secret = secret_file.read_secret("--auth-secret-file", options.auth_secret_file)
    if not SECRET.fullmatch(secret):
        path = options.auth_secret_file
        raise OptionsError(f"--auth-secret-file {path} has to have one word of ASCII, the secret")
    return secret


def tls_context(options: Options) -> ssl.SSLContext:
    cert, key = options.http_client_tls_cert, options.http_client_tls_key
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if options.http_client_tls_insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert:
        try:
            load_certificate(context, cert, key)
        except OptionsError as error:
            raise OptionsError(f"failed to LoadX509KeyPair {cert}, {key} - {error}") from None
    if options.http_client_tls_root_ca_file:
        _trust(context, options.http_client_tls_root_ca_file)
    else:
        context.load_default_certs()
    return context


def _trust(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise OptionsError(f"failed to AppendCertsFromPEM {path}") from None
    except OSError as error:
        text = f"failed to read TLS root CA file {path} - open {path}: {os_error(error)}"
        raise OptionsError(text) from None
