"""Check passwords: rate-limited, in threads, and with a cache for scripts."""

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from nsqfast.nsqadmin.access.tries import Tries
from nsqfast.nsqadmin.access.users import Account, Users

THREADS: Final = 2  # each check takes 64 MiB
CHECKS_MAX: Final = 64  # under way or waiting for a thread
REMEMBERED_S: Final = 60.0  # a script sends its password with each request
REMEMBERED_MAX: Final = 1000


class TooManyTriesError(Exception):
    """The password was not checked: try again in a minute."""


class Passwords:
    """`users` is the content of --auth-file; `replace` installs a new one."""

    def __init__(self, users: Users, clock: Callable[[], float] = time.monotonic) -> None:
        self.users = users
        self.tries = Tries()
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._threads = ThreadPoolExecutor(THREADS, "password")
        self._checks: dict[bytes, asyncio.Future[Account | None]] = {}
        self._right: dict[bytes, tuple[Account, float]] = {}

    def replace(self, users: Users) -> None:
        """Use these users from now on."""
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
        return found if found is not None and self.users.get(name) == found else None

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
        if self.users.get(account.name) != account:
            return
        self._right.pop(key, None)
        while len(self._right) >= REMEMBERED_MAX:
            self._right.pop(next(iter(self._right)))
        self._right[key] = account, self._clock() + REMEMBERED_S
