"""Count login attempts, in tables of bounded size."""

import collections
from typing import Final

from nsqfast.nsqadmin.access.cidr import Address, read_address

WINDOW_S: Final = 60.0
PAIR_TRIES_MAX: Final = 5  # one user from one address
ADDRESS_TRIES_MAX: Final = (
    20  # all users from one address: an office, or somebody who guesses names
)
KEYS_MAX: Final = 10_000
IPV6_PREFIX_BITS: Final = 64  # one customer's network


class _Table:
    """Counts by key over the last WINDOW_S; when it is full, the oldest keys are removed."""

    def __init__(self, tries_max: int) -> None:
        self._tries_max = tries_max
        self._times: collections.OrderedDict[str, collections.deque[float]] = (
            collections.OrderedDict()
        )

    def count(self, key: str, now_s: float) -> int:
        times = self._times.get(key)
        while times and times[0] <= now_s - WINDOW_S:
            times.popleft()
        return len(times) if times else 0

    def is_full(self, key: str, now_s: float) -> bool:
        return self.count(key, now_s) >= self._tries_max

    def add(self, key: str, now_s: float) -> None:
        self._times.setdefault(key, collections.deque(maxlen=self._tries_max)).append(now_s)
        self._times.move_to_end(key)
        while len(self._times) > KEYS_MAX:
            self._times.popitem(last=False)

    def remove(self, key: str) -> None:
        self._times.pop(key, None)

    def __len__(self) -> int:
        return len(self._times)


class Tries:
    """Take one before checking the password, and forgive them all if it was right."""

    def __init__(self) -> None:
        self.pairs = _Table(PAIR_TRIES_MAX)
        self.addresses = _Table(ADDRESS_TRIES_MAX)

    def take(self, user: str, address: str, now_s: float) -> bool:
        """False after too many within the last minute; a refused attempt does not lengthen the wait."""
        network = network_of(address)
        pair = f"{network} {user}"
        if self.pairs.is_full(pair, now_s) or self.addresses.is_full(network, now_s):
            return False
        self.pairs.add(pair, now_s)
        self.addresses.add(network, now_s)
        return True

    def forgive(self, user: str, address: str) -> None:
        """The password was right. The address keeps its count, or one known account would allow unlimited guesses."""
        self.pairs.remove(f"{network_of(address)} {user}")


def network_of(address: str) -> str:
    """The network of an address: an IPv6 customer has more addresses than could be counted."""
    found: Address | None = read_address(address)
    if found is None or found.version == 4:
        return str(found or "")
    return str(int(found) >> (128 - IPV6_PREFIX_BITS))
