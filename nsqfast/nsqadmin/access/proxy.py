"""A proxy's headers about the browser behind it: trusted only from --acl-trusted-cidr."""

from typing import Final

from aiohttp import web

from nsqfast.nsqadmin.access.cidr import Networks, read_address
from nsqfast.wire.gotext import format_address, format_host

FLAG: Final = "--acl-trusted-cidr"
FORWARDED_COUNT_MAX: Final = 32  # addresses of X-Forwarded-For to examine


def peer_of(request: web.Request) -> str:
    """ADDRESS:PORT of the peer."""
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

    def __init__(self, networks: list[str]) -> None:
        self._networks = Networks(networks, FLAG)

    def are_named(self) -> bool:
        """Whether the flag was given."""
        return bool(self._networks)

    def has(self, request: web.Request) -> bool:
        """Whether the request came through one of them."""
        return (request.remote or "") in self._networks

    def address_of(self, request: web.Request) -> str:
        """The client's: of X-Forwarded-For the last that is no proxy's, for what is left of it anybody can send."""
        peer = format_host(request.remote or "")
        if not self.has(request):
            return peer
        given = ",".join(request.headers.getall("X-Forwarded-For", []))
        for text in reversed(given.split(",")[-FORWARDED_COUNT_MAX:]):
            address = read_address(text.strip())
            if address is None:
                return peer
            if str(address) not in self._networks:
                return str(address)
        return peer

    def is_https(self, request: web.Request) -> bool:
        """Whether the browser's connection is encrypted."""
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
