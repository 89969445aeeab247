"""From a URL to the bytes of requests, in the order and with the headers that Go's nsq_to_http sends."""

import re
from collections.abc import Mapping
from urllib.parse import quote_from_bytes

from nsqfast.net.http_target import CONTROL, Target, parse_target

# Go writes these itself, ignoring given headers of these names.
NOT_SENT = frozenset({"Host", "Content-Length", "Transfer-Encoding", "Trailer"})
PLACE = "nsqfastbodyofthemessage"  # replaces a GET URL's %s while it is parsed

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORMAT = re.compile("(%%|%s)")


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
    if CONTROL.search(value):
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
