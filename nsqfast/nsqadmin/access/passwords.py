"""Passwords: checked in threads, with a limit of attempts, and with a cache for scripts."""

import asyncio
import collections
import hmac
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from nsqfast.nsqadmin.access.origin import Address, parse_peer_ip
from nsqfast.nsqadmin.access.users import Account, Users

WINDOW_S: Final = 60.0
PAIR_TRIES_MAX: Final = 5  # one user from one address
# All users from one address: an office, or somebody who guesses names.
ADDRESS_TRIES_MAX: Final = 20
KEYS_MAX: Final = 10_000
IPV6_PREFIX_BITS: Final = 64  # one customer's network
THREADS: Final = 2  # each check takes 64 MiB
CHECKS_MAX: Final = 64  # under way or waiting for a thread
REMEMBERED_S: Final = 60.0  # a script sends its password with each request
REMEMBERED_MAX: Final = 1000


class _AttemptCounts:
    """Counts by key over the last WINDOW_S; when it is full, the oldest keys are removed."""

    def __init__(self, tries_max: int) -> None:
        self._tries_max = tries_max
        self.times: collections.OrderedDict[str, collections.deque[float]] = (
            collections.OrderedDict()
        )

    def is_full(self, key: str, now_s: float) -> bool:
        times = self.times.get(key, ())
        return sum(at_s > now_s - WINDOW_S for at_s in times) >= self._tries_max

    def add(self, key: str, now_s: float) -> None:
        self.times.setdefault(key, collections.deque(maxlen=self._tries_max)).append(now_s)
        self.times.move_to_end(key)
        while len(self.times) > KEYS_MAX:
            self.times.popitem(last=False)


class LoginAttempts:
    """Take one before checking the password, and forgive them all if it was right."""

    def __init__(self) -> None:
        self.pairs = _AttemptCounts(PAIR_TRIES_MAX)
        self.addresses = _AttemptCounts(ADDRESS_TRIES_MAX)

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
        self.pairs.times.pop(f"{network_of(address)} {user}", None)


def network_of(address: str) -> str:
    """The network of an address: an IPv6 customer has more addresses than could be counted."""
    found: Address | None = parse_peer_ip(address)
    if found is None or found.version == 4:
        return str(found or "")
    return str(int(found) >> (128 - IPV6_PREFIX_BITS))


class TooManyTriesError(Exception):
    """The password was not checked: try again in a minute."""


class Passwords:
    """`users` is the content of --auth-file; `replace` installs a new one."""

    def __init__(self, users: Users, clock: Callable[[], float] = time.monotonic) -> None:
        self.users = users
        self.tries = LoginAttempts()
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._threads = ThreadPoolExecutor(THREADS, "password")
        self._checks: dict[bytes, asyncio.Future[Account | None]] = {}
        self._right: dict[bytes, tuple[Account, float]] = {}

    def replace(self, users: Users) -> None:
        self.users = users
        self._right.clear()

    def close(self) -> None:
        """Close without waiting for checks."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def check(self, name: str, password: str, address: str) -> Account | None:
        """The account, or None if name and password do not match; TooManyTriesError."""
        given = f"{address}\0{name}\0{password}".encode("utf-8", "surrogatepass")
        key = hmac.digest(self._key, given, "sha256")
        account, ends_at = self._right.get(key, (None, 0.0))
        if account is not None and self._clock() < ends_at:
            return account
        check = self._checks.get(key)
        if check is None:
            check = self._begin(key, name, password, address)
        found = await asyncio.shield(check)
        # The file may have been reloaded meanwhile.
        return found if found is not None and self.users.accounts.get(name) == found else None

    def _begin(
        self, key: bytes, name: str, password: str, address: str
    ) -> asyncio.Future[Account | None]:
        if len(self._checks) >= CHECKS_MAX or not self.tries.take(name, address, self._clock()):
            raise TooManyTriesError
        loop = asyncio.get_running_loop()
        check = loop.run_in_executor(self._threads, self.users.verify, name, password)
        self._checks[key] = check

        def end(done: asyncio.Future[Account | None]) -> None:
            del self._checks[key]
            if not done.cancelled() and done.exception() is None and (account := done.result()):
                self.tries.forgive(name, address)
                self._remember(key, account)

        check.add_done_callback(end)
        return check

    def _remember(self, key: bytes, account: Account) -> None:
        # Remember only correct passwords, and only as long as the file contains them.
        if self.users.accounts.get(account.name) != account:
            return
        self._right.pop(key, None)
        while len(self._right) >= REMEMBERED_MAX:
            self._right.pop(next(iter(self._right)))
        self._right[key] = account, self._clock() + REMEMBERED_S
