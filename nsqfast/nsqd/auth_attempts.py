"""Wrong secrets, by the address that sent them: whoever guesses is refused, and no auth server is asked for him."""

import time
from collections import OrderedDict
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

MINUTE_S = 60.0
ADDRESSES_MAX = 4096
SECRETS_MAX = 4096


class Attempts:
    """So many wrong secrets a minute for each address, or 0 for any number. A secret that was good before is asked for
    all the same: others may share the address.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._wrong: OrderedDict[str, tuple[float, float]] = OrderedDict()  # (how many, when)
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def are_spent(self, address: str, secret: bytes) -> bool:
        """Whether this secret is not to be asked for now."""
        if not self._count_max or sha256(secret).digest() in self._good:
            return False
        return self._count(_network(address)) >= self._count_max

    def note(self, address: str, secret: bytes, *, is_good: bool) -> None:
        """Remember what an auth server said of it."""
        if is_good:
            _remember(self._good, sha256(secret).digest(), None, SECRETS_MAX)
        elif self._count_max:
            place = _network(address)
            counted = self._count(place) + 1, time.monotonic()
            _remember(self._wrong, place, counted, ADDRESSES_MAX)

    def _count(self, place: str) -> float:
        """Of the last minute, about: they are forgotten at an even pace."""
        count, noted_s = self._wrong.get(place, (0.0, 0.0))
        forgotten = (time.monotonic() - noted_s) * self._count_max / MINUTE_S
        return max(0.0, count - forgotten)


def _remember(table: OrderedDict[Any, Any], key: Any, value: Any, size_max: int) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > size_max:
        table.popitem(last=False)


def _network(address: str) -> str:
    """The address; of version 6, the /64 that a single customer usually has."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address  # '' for a Unix socket
    return address if parsed.version == 4 else str(int(parsed) >> 64)
