"""Refuse what a page of another site made a browser send, and what a page sends whose name leads to this machine.

A browser tells by Sec-Fetch-Site (https://www.w3.org/TR/fetch-metadata/) or Origin (RFC 6454) where a request comes
from, and lets no page read an answer of another site. A page whose name was made to resolve to this machine (DNS
rebinding) is no other site to it; but it has a name, which the browser sends as Host. Programs send neither of the
first two, and as Host what they were told to connect to.
"""

import ipaddress
import logging
from collections.abc import Container, Iterable
from urllib.parse import urlsplit

from nsqfast.errors import OptionsError
from nsqfast.net.addresses import Bound
from nsqfast.net.http_message import Request, Response
from nsqfast.net.http_reply import error_answer
from nsqfast.wire.gotext import quote
from nsqfast.wire.refusals import REFUSED

FLAG = "--allowed-host"
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
OTHER_SITES = frozenset((b"cross-site", b"same-site"))
DEFAULT_PORTS = {"http": 80, "https": 443}

CROSS_SITE = error_answer(403, "CROSS_SITE")
UNKNOWN_HOST = error_answer(403, "UNKNOWN_HOST")


class BrowserRules:
    """Which requests one listener takes. It asks for the Host where names were given, and on a loopback address.

    `own` is the broadcast address: others are told to use it, and no page of another site has that name.
    """

    def __init__(
        self, address: Bound, allowed: Iterable[str], log: logging.Logger, own: str = ""
    ) -> None:
        named = frozenset(map(read_name, allowed))
        self._allowed = named | {own.lower().rstrip(".")}
        host = address[0] if isinstance(address, tuple) else ""
        self.asks_host = bool(host) and (bool(named) or is_loopback(host))
        self._log = log

    def refuse(self, request: Request) -> Response | None:
        """The refusal, if this listener does not take the request."""
        headers = request.headers
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self.asks_host and host and not is_known(host, self._allowed):
            return self._say(request, UNKNOWN_HOST, "Host", host, f"{FLAG} adds a name")
        if request.method in SAFE_METHODS:
            return None
        if headers.get(b"sec-fetch-site") in OTHER_SITES:
            site = headers[b"sec-fetch-site"].decode("latin-1")
            return self._say(
                request, CROSS_SITE, "Sec-Fetch-Site", site, "only programs may do this"
            )
        origin = headers.get(b"origin")
        if origin is not None and not is_own(origin.decode("latin-1"), (host,)):
            shown = origin.decode("latin-1")
            return self._say(request, CROSS_SITE, "Origin", shown, "only programs may do this")
        return None

    def _say(
        self, request: Request, answer: Response, header: str, value: str, advice: str
    ) -> Response:
        REFUSED["unknown_host" if answer is UNKNOWN_HOST else "cross_site"] += 1
        if (note := request.admit_line()) is not None:
            self._log.warning(
                "HTTP: %s %s of client(%s) is refused, its %s is %s: %s%s",
                request.method,
                quote(request.target.decode("latin-1")),
                request.remote,
                header,
                quote(value),
                advice,
                note,
            )
        return answer


def is_known(host: str, allowed: Container[str]) -> bool:
    """Whether a Host header, in lower case, names this machine by an address, a local name, or an allowed one."""
    name = split_host(host, "")[0] or ""
    return name in allowed or is_local(name) or parse_ip_address(name) is not None


def is_own(origin: str, hosts: Iterable[str]) -> bool:
    """Whether a page of this origin is one of our own, by the hosts under which the request reached us."""
    try:
        parts = urlsplit(origin.strip().lower())
        wanted = (parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme))
    except ValueError:
        return False
    if not parts.hostname:  # `null`: a sandboxed frame, a file, a redirect from elsewhere
        return False
    return any(split_host(host, parts.scheme) == wanted for host in hosts)


def split_host(host: str, scheme: str) -> tuple[str | None, int | None]:
    """Name and port of a Host header; (None, None) if it is none."""
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "").rstrip(".") or None, parts.port or DEFAULT_PORTS.get(scheme)
    except ValueError:
        return None, None


def is_local(host: str) -> bool:
    """Whether browsers resolve this name to the local machine by themselves (RFC 6761, 6.3)."""
    return host == "localhost" or host.endswith(".localhost")


def is_loopback(host: str) -> bool:
    """Whether this host of a listener is loopback: `127.0.0.1`, `[::1]` or `localhost`."""
    address = parse_ip_address(host.strip("[]"))
    return is_local(host.lower()) if address is None else address.is_loopback


def parse_ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that this text is, if it is one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def read_name(text: str) -> str:
    """A host's name as Host headers have it; OptionsError."""
    name = text.lower().rstrip(".")
    if not name or set(name) & set("/:@[] ") or not name.isascii():
        raise OptionsError(f"{FLAG} ({text}) has to be the name of a host, without scheme and port")
    return name
