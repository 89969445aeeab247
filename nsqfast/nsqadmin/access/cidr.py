"""Lists of networks from flags, and tests whether they contain an address."""

import ipaddress
from collections.abc import Iterable

from nsqfast.errors import OptionsError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def read_address(text: str) -> Address | None:
    """None if it is not an IP address. An IPv4 address that came over an IPv6 socket (::ffff:10.0.0.1) becomes IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


class Networks:
    """Supports `address in networks` for strings; a string that is not an address is in none of them."""

    def __init__(self, texts: Iterable[str], flag: str) -> None:
        """Parse 10.0.0.0/8 or fd00::/8; an address alone stands for itself. OptionsError names the flag."""
        try:
            # Go reads 127.0.0.1/8, nsqadmin's own default, as 127.0.0.0/8.
            self._networks = [ipaddress.ip_network(text.strip(), strict=False) for text in texts]
        except ValueError as error:
            raise OptionsError(f"failed to parse {flag}: {error}") from None

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, text: str) -> bool:
        address = read_address(text)
        return address is not None and any(address in network for network in self._networks)
