"""Users and their roles. The middleware of `access` puts a User into every request.

--auth-file has a line `name:role:hash` per user, which --hash-password makes. The hash is argon2id in its usual text
form (https://www.rfc-editor.org/rfc/rfc9106). Empty lines and those that begin with `#` are skipped.
"""

import getpass
import logging
import os
import re
import signal
import stat
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import argon2
from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.program.stdout import print_text
from nsqfast.wire.gotext import os_error

# Why less of a request was believed than it claims.
DOUBT_KEY: web.RequestKey[str] = web.RequestKey("nsqadmin.doubt", str)
log = logging.getLogger("nsqadmin")
FLAG: Final = "--auth-file"
NAME: Final = re.compile(r"[^\s:#\x00-\x1f\x7f-\x9f][^:\x00-\x1f\x7f-\x9f]{0,63}(?<!\s)")
NAME_RULE: Final = (
    "1 to 64 characters without a colon, not beginning with # and without spaces around"
)
PASSWORD_BYTES_MAX: Final = 1024
FILE_BYTES_MAX: Final = 16 << 20
FIELD_LENGTH_MAX: Final = 4096


class Role(StrEnum):
    NOBODY = "nobody"  # has to log in first
    VIEWER = "viewer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class User:
    """The sender; `name` is '' if no login is configured or none was given."""

    name: str
    role: Role

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN


USER_KEY: web.RequestKey[User] = web.RequestKey("nsqadmin.user", User)


def user_of(request: web.Request) -> User:
    """The user that the middleware set before any handler runs."""
    return request[USER_KEY]


ROLES: Final = {"viewer": Role.VIEWER, "admin": Role.ADMIN}


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    role: Role
    hash: str


class Users:
    """The file as it was when it was read."""

    def __init__(self, accounts: dict[str, Account]) -> None:
        assert accounts
        self.accounts = accounts
        self._hasher = argon2.PasswordHasher()
        self._decoy = ""

    def verify(self, name: str, password: str) -> Account | None:
        """The account if this is its password. Takes a tenth of a second and 64 MiB: run it in a thread.

        An unknown name takes as long as a known one, so that the time does not reveal which names exist.
        """
        account = self.accounts.get(name)
        known = account.hash if account else self._decoy_hash()
        if len(password.encode("utf-8", "surrogatepass")) > PASSWORD_BYTES_MAX:
            password = ""
        try:
            self._hasher.verify(known, password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return None
        except UnicodeEncodeError:
            return None
        return account

    def _decoy_hash(self) -> str:
        if not self._decoy:
            # With the cost that the accounts' own hashes have.
            first = next(iter(self.accounts.values()))
            hasher = argon2.PasswordHasher.from_parameters(argon2.extract_parameters(first.hash))
            self._decoy = hasher.hash(os.urandom(32))
        return self._decoy


def read_users(path: str) -> Users:
    """OptionsError names the line that is wrong, never what stands in it."""
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise OptionsError(f"failed to read {FLAG} {path}: {os_error(error)}") from None
    if mode & stat.S_IROTH:
        log.warning("%s %s can be read by everybody on this machine: chmod o-r", FLAG, path)
    accounts: dict[str, Account] = {}
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise OptionsError(f"{FLAG} {path} is no UTF-8 text") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            account = read_account(line.strip())
        except ValueError as error:
            raise OptionsError(f"{FLAG} {path}, line {number}: {error}") from None
        if account.name in accounts:
            raise OptionsError(f"{FLAG} {path}, line {number}: this user stands there twice")
        accounts[account.name] = account
    if not accounts:
        raise OptionsError(f"{FLAG} {path} has no users: add lines of --hash-password")
    return Users(accounts)


def read_account(line: str) -> Account:
    """ValueError says what is wrong."""
    name, first, rest = line.partition(":")
    role, second, known = rest.partition(":")
    if not first or not second:
        raise ValueError("expected name:role:hash")
    check_name_and_role(name, role)
    try:
        kind = argon2.extract_parameters(known).type
    except argon2.exceptions.InvalidHashError:
        kind = None
    if kind is not argon2.Type.ID:
        raise ValueError("the hash is no argon2id hash: make the line with --hash-password")
    return Account(name, ROLES[role], known)


def check_name_and_role(name: str, role: str) -> None:
    """ValueError says what is wrong."""
    if not NAME.fullmatch(name):
        raise ValueError(f"a user's name has {NAME_RULE}")
    if role not in ROLES:
        raise ValueError("a role is viewer or admin")


def print_account() -> None:
    """Ask for name, role and password at a terminal, or read them from three lines of stdin; print name:role:hash.

    OptionsError for invalid input.
    """
    # The loop's own handler would wait for this call to end.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        is_asked = sys.stdin.isatty()
        name, role, password = _ask() if is_asked else (_line(), _line(), _line(strips=False))
    except (KeyboardInterrupt, EOFError):
        raise OptionsError("no name, role and password were given") from None
    except UnicodeError:
        raise OptionsError("name, role and password have to be UTF-8 text") from None
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        check_name_and_role(name, role)
        check_password(password)
    except ValueError as error:
        raise OptionsError(str(error)) from None
    print_text(f"{name}:{role}:{argon2.PasswordHasher().hash(password)}")


def check_password(password: str) -> None:
    """ValueError says what is wrong."""
    if not password:
        raise ValueError("the password is empty")
    if len(password.encode("utf-8", "surrogatepass")) > PASSWORD_BYTES_MAX:
        raise ValueError(f"the password has more than {PASSWORD_BYTES_MAX} bytes")


def _ask() -> tuple[str, str, str]:
    name, role = _line("name: "), _line("role (viewer or admin): ")
    password = getpass.getpass("password: ")
    if getpass.getpass("password again: ") != password:
        raise OptionsError("the two passwords differ")
    return name, role, password


def _line(prompt: str = "", *, strips: bool = True) -> str:
    # Prompts go to stderr: stdout may be appended to the file.
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline(FIELD_LENGTH_MAX)
    if not line:
        raise EOFError
    line.encode()  # Python may have let other bytes through
    return line.strip() if strips else line.rstrip("\r\n")
