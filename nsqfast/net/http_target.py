"""From a URL to the server to connect to, and to what a request to it says."""

import base64
import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
PATH_CHARACTERS = "%!$&'()*+,;=:@/[]~"
QUERY_CHARACTERS = PATH_CHARACTERS + '?|\\^`{}"<>'
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


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
    if CONTROL.search(url):
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
