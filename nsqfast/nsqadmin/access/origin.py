"""Where a request comes from: its address, the proxies before it, and the site that made a browser send it.

A proxy's headers about the browser behind it are believed only from --acl-trusted-cidr. Requests that another site made
a browser send are refused before any handler sees them; net.browsers says how one tells. A script sends neither
Sec-Fetch-Site nor Origin and is let through: it has no login that another site could use.
"""

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.net.browsers import is_known, is_own, read_name
from nsqfast.nsqadmin.options import Options
from nsqfast.wire.gotext import format_address, format_host

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
TRUSTED_FLAG: Final = "--acl-trusted-cidr"
FORWARDED_COUNT_MAX: Final = 32  # addresses of X-Forwarded-For to examine
FORM: Final = "application/x-www-form-urlencoded"


def parse_peer_ip(text: str) -> Address | None:
    """None if it is not an IP address. An IPv4 address that came over an IPv6 socket (::ffff:10.0.0.1) becomes IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def peer_of(request: web.Request) -> str:
    """ADDRESS:PORT of whoever connected: the browser, or the proxy before it."""
    transport = request.transport
    return format_address(transport.get_extra_info("peername") if transport else None)


def host_of(request: web.Request) -> str:
    """The header, '' without it: `request.host` would query the name server instead, while everybody waits."""
    return request.headers.get("Host", "")


def readable(text: str) -> str:
    """Replace bytes of a header that are not UTF-8, so that JSON and pages can show the rest."""
    return text.encode("utf-8", "replace").decode()


class Proxies:
    """The trusted proxies. Without the flag no X-Forwarded-* header is trusted."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Parse 10.0.0.0/8 or fd00::/8; an address alone stands for itself. OptionsError names the flag."""
        try:
            # Go reads 127.0.0.1/8, nsqadmin's own default, as 127.0.0.0/8.
            self._networks = [ipaddress.ip_network(text.strip(), strict=False) for text in texts]
        except ValueError as error:
            raise OptionsError(f"failed to parse {TRUSTED_FLAG}: {error}") from None

    def are_named(self) -> bool:
        """Whether the flag was given."""
        return bool(self._networks)

    def has(self, request: web.Request) -> bool:
        """Whether the request came through one of them."""
        return self.includes(parse_peer_ip(request.remote or ""))

    def includes(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)

    def address_of(self, request: web.Request) -> str:
        """The client's: of X-Forwarded-For the last that is no proxy's, for what is left of it anybody can send."""
        peer = format_host(request.remote or "")
        if not self.has(request):
            return peer
        given = ",".join(request.headers.getall("X-Forwarded-For", []))
        for text in reversed(given.split(",")[-FORWARDED_COUNT_MAX:]):
            address = parse_peer_ip(text.strip())
            if address is None:
                return peer
            if not self.includes(address):
                return str(address)
        return peer

    def is_https(self, request: web.Request) -> bool:
        if request.secure:
            return True
        return self.has(request) and "https" in {
            request.headers.get(name, "").partition(",")[0].strip().lower()
            for name in ("X-Forwarded-Proto", "X-Scheme")
        }

    def hosts_of(self, request: web.Request) -> list[str]:
        """HOST or HOST:PORT under which the browser may have addressed us."""
        hosts = [host_of(request)]
        if self.has(request):
            hosts += request.headers.get("X-Forwarded-Host", "").split(",")
        return [host.strip().lower() for host in hosts if host.strip()]


class OwnNames:
    """The names under which this nsqadmin is served; OptionsError.

    A page whose name was made to resolve to this machine (DNS rebinding) is one of ours to the browser, but not under
    one of these.
    """

    def __init__(self, options: Options) -> None:
        given = options.http_address.rpartition(":")[0].lower()
        own = {socket.gethostname().lower(), given} - {""}
        self._known = own.union(map(read_name, options.allowed_hosts))

    def has(self, request: web.Request) -> bool:
        """Whether it has no other Host; old scripts have none."""
        host = host_of(request).lower()
        return not host or is_known(host, self._known)


def foreign_reason(request: web.Request, proxies: Proxies) -> str:
    """Why a request that may change something is not from one of our own pages; '' if nothing indicates that."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site != "same-origin":
        return "sent by another site (Sec-Fetch-Site)"
    for origin in request.headers.getall("Origin", []):
        if not is_own(origin, proxies.hosts_of(request)):
            return "sent by another site (Origin)"
    return ""


def has_known_type(request: web.Request) -> bool:
    """Whether the body is JSON or a form, as our pages send it. An empty body needs no type."""
    if not request.body_exists or (
        request.content_length == 0 and "Content-Type" not in request.headers
    ):
        return True
    return request.content_type in ("application/json", FORM)
