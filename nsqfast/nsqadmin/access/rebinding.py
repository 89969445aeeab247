"""Refuse requests of a page whose name was made to resolve to this machine (DNS rebinding).

To the browser such a page is one of ours, because both have the same name; neither a firewall nor a listener on
127.0.0.1 keeps it out. But it must have a name, since its own address would not lead here; its scheme is http, since
nobody else has a certificate for us; and its port is ours, since there is nothing in between. An `Origin` with all
three properties is refused, except for allowed names. Scripts send no Origin, and a proxy in front of us has another
port.

Listeners beyond the loopback interface have names that only the operator knows, so there the flag enables this.
"""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.options import Options

FLAG: Final = "--allowed-host"
HTTP_PORT: Final = 80


class Names:
    """The names under which this nsqadmin accepts changes; OptionsError."""

    def __init__(self, options: Options) -> None:
        self._allowed = frozenset(map(_read_name, options.allowed_hosts))
        self._is_on = bool(self._allowed) or is_loopback(options.http_address.rpartition(":")[0])

    def doubt(self, request: web.Request) -> str:
        """Why the request may come from a foreign page; '' if nothing indicates that."""
        if not self._is_on:
            return ""
        own_port = _own_port(request)
        for origin in request.headers.getall("Origin", []):
            host, port = _read_origin(origin)
            if host and port == own_port and not self._is_known(host):
                return f"{host} may be a name that another site gave this machine: allow it with {FLAG}={host}"
        return ""

    def _is_known(self, host: str) -> bool:
        return host in self._allowed or is_local(host) or _read_address(host) is not None


def is_local(host: str) -> bool:
    """Whether browsers resolve this name to the local machine by themselves (RFC 6761, 6.3)."""
    return host == "localhost" or host.endswith(".localhost")


def is_loopback(host: str) -> bool:
    """Whether this host of a listener is loopback: `127.0.0.1`, `[::1]` or `localhost`."""
    address = _read_address(host.strip("[]"))
    return is_local(host.lower()) if address is None else address.is_loopback


def _read_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _read_origin(origin: str) -> tuple[str, int]:
    """Host and port of a page loaded over http; '' for others."""
    try:
        parts = urlsplit(origin.strip().lower())
        host, port = parts.hostname or "", parts.port or HTTP_PORT
    except ValueError:
        return "", 0
    return (host.rstrip("."), port) if parts.scheme == "http" else ("", 0)


def _own_port(request: web.Request) -> int:
    name = request.get_extra_info("sockname")
    return name[1] if name else 0


def _read_name(text: str) -> str:
    name = text.lower().rstrip(".")
    if not name or set(name) & set("/:@[] ") or not name.isascii():
        raise OptionsError(f"{FLAG} ({text}) has to be the name of a host, without scheme and port")
    return name
