"""One HTTP client for all nsqd and nsqlookupd: time limits, the way to HTTPS, errors that name their cause."""

import ssl
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import msgspec

from nsqfast.errors import OptionsError
from nsqfast.gotext import quote
from nsqfast.nsqadmin.options import Options

T = TypeVar("T")

HEADERS = {"Accept": "application/vnd.nsq; version=1.0", "User-Agent": "nsqadmin"}
BODY_SIZE_MAX = 512 << 20
CONNECTIONS_PER_HOST = 4


class UpstreamError(Exception):
    """A node did not answer as it should; the text says what was asked and why it failed. `status` is 0 without one."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class _HttpsPort(msgspec.Struct):
    https_port: int = 0


class Upstream:
    """Opened once with the server, closed with it."""

    def __init__(self, options: Options) -> None:
        self._ssl = tls_context(options)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, limit_per_host=CONNECTIONS_PER_HOST, ssl=self._ssl
            ),
            timeout=aiohttp.ClientTimeout(
                total=options.http_client_request_timeout_ns / 1e9,
                sock_connect=options.http_client_connect_timeout_ns / 1e9,
            ),
            headers=HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all connections."""
        await self._session.close()

    async def get(self, address: str, path: str) -> bytes:
        """The body of http://ADDRESS/PATH; UpstreamError for anything but status 200."""
        return await self._ask("GET", address, path, b"")

    async def post(self, address: str, path: str, body: bytes = b"") -> bytes:
        """As `get`."""
        return await self._ask("POST", address, path, body)

    async def read(self, address: str, path: str, kind: type[T]) -> T:
        """What `get` gives, decoded as one of upstream.messages."""
        body = await self.get(address, path)
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise UpstreamError(f"http://{address}{path}: {error}") from None

    async def _ask(self, method: str, address: str, path: str, body: bytes) -> bytes:
        url = f"http://{address}{path}"
        status, reason, answer = await self._send(method, url, body)
        port = _https_port(status, answer)
        if port:
            host = address.rsplit(":", 1)[0]
            url = f"https://{host}:{port}{path}"
            status, reason, answer = await self._send(method, url, body)
        if status != 200:
            shown = quote(answer[:1024].decode("utf-8", "replace"))
            raise UpstreamError(f"{url}: got response {status} {reason} {shown}", status)
        return answer

    async def _send(self, method: str, url: str, body: bytes) -> tuple[int, str, bytes]:
        try:
            async with self._session.request(
                method, url, data=body or None, allow_redirects=False
            ) as answer:
                return answer.status, answer.reason or "", await answer.read()
        except TimeoutError:
            raise UpstreamError(f"{url}: no answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
            text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
            raise UpstreamError(f"{url}: {text or type(cause).__name__}") from None


def _https_port(status: int, answer: bytes) -> int:
    """nsqd with --tls-required answers 403 to HTTP and says where HTTPS is."""
    if status != 403:
        return 0
    try:
        return msgspec.json.decode(answer, type=_HttpsPort).https_port
    except msgspec.DecodeError:
        return 0


def tls_context(options: Options) -> ssl.SSLContext:
    """As the flags --http-client-tls-* say."""
    cert, key = options.http_client_tls_cert, options.http_client_tls_key
    if bool(cert) != bool(key):
        missing, given = ("key", "cert") if cert else ("cert", "key")
        raise OptionsError(
            f"--http-client-tls-{missing} must be specified with --http-client-tls-{given}"
        )
    context = ssl.create_default_context()
    if options.http_client_tls_insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if options.http_client_tls_root_ca_file:
            context.load_verify_locations(options.http_client_tls_root_ca_file)
        if cert:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise OptionsError(f"failed to load the files of --http-client-tls-*: {error}") from None
    return context
