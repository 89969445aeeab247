"""From a URL to the bytes of requests, in the order and with the headers that Go's nsq_to_http sends."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
PORT_MAX = 65535
# Go writes these itself, ignoring given headers of these names.
NOT_SENT = frozenset({"Host", "Content-Length", "Transfer-Encoding", "Trailer"})
PLACE = "nsqfastbodyofthemessage"  # replaces a GET URL's %s while it is parsed
PATH_CHARACTERS = "%!$&'()*+,;=:@/[]~"
QUERY_CHARACTERS = PATH_CHARACTERS + '?|\\^`{}"<>'

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORMAT = re.compile("(%%|%s)")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Origin(NamedTuple):
    """The server to connect to."""

    is_tls: bool
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL."""

    scheme: str
    origin: Origin
    host: str  # value of the Host header
    path: str  # including the query
    authorization: str  # '' = the URL has no user

    @property
    def url(self) -> str:
        """The URL without user and fragment, as in a Referer."""
        return f"{self.scheme}://{self.host}{self.path}"


def parse_target(url: str) -> Target:
    """ValueError says what is wrong with it."""
    if _CONTROL.search(url):
        raise ValueError("it has a control character")
    parts = urlsplit(url)
    port = parts.port
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError("it is a URL that begins with http:// or https://")
    if port == 0:
        raise ValueError("port 0 is none")
    user, _, host = parts.netloc.rpartition("@")
    name = parts.hostname.partition("%")[0] if ":" in parts.hostname else parts.hostname
    try:
        encoded = name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        raise ValueError(f"{name!r} is no name of a host") from None
    if " " in host:
        raise ValueError("there is a space in the name of the host")
    origin = Origin(parts.scheme == "https", parts.hostname, port or DEFAULT_PORTS[parts.scheme])
    host = host if host.isascii() else encoded + (f":{port}" if port else "")
    path = quote(parts.path or "/", safe=PATH_CHARACTERS)
    if parts.query:
        path += "?" + quote(parts.query, safe=QUERY_CHARACTERS)
    return Target(parts.scheme, origin, host, path, _basic(user))


def _basic(user: str) -> str:
    if not user:
        return ""
    name, _, password = user.partition(":")
    credentials = unquote_to_bytes(name) + b":" + unquote_to_bytes(password)
    return "Basic " + base64.b64encode(credentials).decode()


def parse_template(url: str) -> tuple[Target, str, str]:
    """Parse a GET URL; returns its path before and after the %s. `%%` is one %, and any other % stands for itself."""
    parts = _FORMAT.split(url)
    if parts.count("%s") != 1:
        raise ValueError("it has %s once, where the message is to stand")
    target = parse_target("".join({"%s": PLACE, "%%": "%"}.get(part, part) for part in parts))
    start, place, end = target.path.partition(PLACE)
    if not place:
        raise ValueError("its %s stands in the path or in the query")
    return target, start, end


def parse_header(text: str) -> tuple[str, str]:
    """Name, as Go spells it, and value; ValueError says what is wrong."""
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name or not value:
        raise ValueError("it is 'Name: value'")
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a header")
    if _CONTROL.search(value):
        raise ValueError("its value has a control character")
    return "-".join(part.capitalize() for part in name.split("-")), value


class Head:
    """The bytes before the body of each request with the same headers to the same host."""

    def __init__(self, method: str, target: Target, headers: Mapping[str, str]) -> None:
        given = dict(headers)
        agent = given.pop("User-Agent")
        if target.authorization:
            given.setdefault("Authorization", target.authorization)
        names = sorted(name for name in given if name not in NOT_SENT)
        lines = [f"{name}: {given[name]}" for name in names]
        if "Accept-Encoding" not in given:
            lines.append("Accept-Encoding: gzip")
        self._method = method.encode()
        self._first = f" HTTP/1.1\r\nHost: {target.host}\r\nUser-Agent: {agent}\r\n".encode()
        self._rest = ("\r\n".join(lines) + "\r\n\r\n").encode()
        self._start = self._method + b" " + target.path.encode() + self._first

    def with_body(self, body: bytes) -> bytes:
        """A request to the target's path."""
        return b"%sContent-Length: %d\r\n%s%s" % (self._start, len(body), self._rest, body)

    def with_path(self, path: bytes) -> bytes:
        """A request without a body, to another path."""
        return b"%s %s%s%s" % (self._method, path, self._first, self._rest)


def escape_query(body: bytes) -> bytes:
    """Escape like Go's url.QueryEscape: a space becomes a plus."""
    return quote_from_bytes(body, safe=" ").replace(" ", "+").encode()
