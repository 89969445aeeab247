"""One daemon's HTTP API, as an Admin uses it: requests, and what answers mean."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import orjson

from nsqfast.client.discovery import OK, probe, read_answer
from nsqfast.errors import (
    ConnectError,
    OptionsError,
    RefusedError,
    UnsupportedError,
    WrongPeerError,
)

if TYPE_CHECKING:
    import aiohttp

ANSWER_SIZE_MAX = 64 << 20  # /stats of many topics
NAME_LENGTH_MAX = 60
# What else there is to say of an answer.
ADVICE = {
    "ADMIN_ADDRESS_ONLY": "say the address that is its --http-admin-address",
    "TLS_REQUIRED": "say https:// and its HTTPS port (4152 as a rule)",
    "UNAUTHORIZED": "say Config(auth_secret=...)",
    "FORBIDDEN": "the auth_secret's identity may not do this",
}
NOT_THERE = {"TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND", "MESSAGE_NOT_FOUND"}
PROBED = {
    "nsqd": "this is the TCP port of an nsqd; give its HTTP port (4151 as a rule)",
    "nsqlookupd": "this is nsqlookupd's TCP port; give its HTTP port (4161 as a rule) as nsqlookupd=",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of daemon: its name, its usual HTTP port, and what to write if it is given in the place of the other."""

    name: str
    port: int
    wrong: str


NSQD = Kind("nsqd", 4151, "this is no nsqd; an nsqlookupd is given as nsqlookupd=")
NSQLOOKUPD = Kind("nsqlookupd", 4161, "this is an nsqd; it is given as first parameter")


def http_url(address: str, kind: Kind) -> str:
    """`http://host:port` of an address, or of a URL without a path; OptionsError for anything else."""
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        is_whole = bool(parts.hostname) and parts.port is not None
    except ValueError:
        is_whole = False
    if (
        not is_whole
        or parts.scheme not in {"http", "https"}
        or parts.path not in {"", "/"}
        or parts.query
        or parts.fragment
        or not address.isprintable()
        or " " in address
    ):
        raise OptionsError(
            f"{address!r}: say host:port or https://host:port, the HTTP port of {kind.name} ({kind.port} as a rule)"
        )
    return f"{parts.scheme}://{parts.netloc}"


@dataclass(slots=True)
class HttpPeer:
    """One daemon; the first request finds out whether it is of that kind."""

    url: str
    kind: Kind
    session: "aiohttp.ClientSession"
    tls: ssl.SSLContext | bool
    headers: Mapping[str, str]
    _info: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """As the user gave it, without http://."""
        return self.url.removeprefix("http://")

    async def get(self, path: str, **values: str | bytes) -> bytes:
        """The body of the answer; RefusedError or UnsupportedError if it is not 200."""
        await self._check_kind()
        return await self._ask("GET", path, values)

    async def post(self, path: str, **values: str | bytes) -> bytes:
        """The same."""
        await self._check_kind()
        return await self._ask("POST", path, values)

    async def _check_kind(self) -> None:
        if not self._info:
            answer = await self._ask("GET", "/info", {})
            info = _read_object(answer)
            if not info or ("tcp_port" in info) is not (self.kind is NSQD):
                raise WrongPeerError(f"{self.address}: {self.kind.wrong}")
            self._info = info

    async def _ask(self, method: str, path: str, values: Mapping[str, str | bytes]) -> bytes:
        import aiohttp
        from yarl import URL

        query = urlencode({name: value for name, value in values.items() if value not in {"", b""}})
        url = URL(f"{self.url}{path}?{query}", encoded=True)
        try:
            async with self.session.request(
                method, url, ssl=self.tls, headers=self.headers, allow_redirects=False
            ) as response:
                answer = await read_answer(response, ANSWER_SIZE_MAX)
        except ConnectError as error:
            raise ConnectError(f"{self.address}: {error}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            is_connected = not isinstance(error, aiohttp.ClientConnectorError | TimeoutError)
            found = PROBED.get(await probe(self.url), "") if is_connected else ""
            text = f"{self.address}: {found or error or type(error).__name__}"
            raise (WrongPeerError if found else ConnectError)(text) from None
        if response.status != OK:
            raise self._refusal(response.status, path, answer)
        return answer

    def _refusal(self, status: int, path: str, answer: bytes) -> Exception:
        """What an answer other than 200 means."""
        name = str(_read_object(answer).get("message", ""))
        if not name.isprintable() or len(name) > NAME_LENGTH_MAX:
            name = ""
        if name in ADVICE:
            return RefusedError(f"{name} {self.address}: {ADVICE[name]}")
        if not self._info:
            return WrongPeerError(f"{self.address}: {self.kind.wrong}")
        if name == "NOT_FOUND":
            return UnsupportedError(
                f"{self.address} has no {path}: NSQ's own {self.kind.name} cannot do that, nsqfast's can"
            )
        if not name:
            return ConnectError(f"{self.address}: {status} {answer[:100]!r}")
        return RefusedError(f"{name} {self.address}")


def _read_object(answer: bytes) -> dict[str, Any]:
    """A JSON object, or an empty one."""
    try:
        found = orjson.loads(answer)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
