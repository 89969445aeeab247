"""Identify the sender of a request: nobody has to say who he is, a proxy names him, or our own login does, which is a
cookie for browsers and HTTP Basic for scripts. docs/ADMIN.md says which flags mean what.
"""

import asyncio
import base64
import binascii
import hashlib
import logging
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.access.origin import TRUSTED_FLAG, Proxies, readable
from nsqfast.nsqadmin.access.passwords import Passwords
from nsqfast.nsqadmin.access.sessions import Session, Sessions
from nsqfast.nsqadmin.access.users import Role, User, read_users
from nsqfast.nsqadmin.options import Options

log = logging.getLogger("nsqadmin")

SESSION_KEY: Final[web.RequestKey[Session]] = web.RequestKey("nsqadmin.session", Session)
NOBODY: Final = User("", Role.NOBODY)


class Mode(StrEnum):
    OPEN = "open"
    HEADER = "header"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender according to the request; `doubt` is why less was believed than it claims."""

    user: User
    session: Session | None = None
    doubt: str = ""


class Access:
    """One per nsqadmin; `mode` is for the footer of pages."""

    def __init__(self, options: Options) -> None:
        self.mode = _mode(options)
        self.proxies = Proxies(options.acl_trusted_cidr)
        self.sessions = Sessions(options.session_lifetime_ns / 1e9)
        self.cookie = _cookie_name(options)
        self._options = options
        self._reading: asyncio.Task[None] | None = None
        self.passwords = (
            Passwords(read_users(options.auth_file)) if self.mode is Mode.FILE else None
        )

    async def identify(self, request: web.Request, *, tries_password: bool) -> Identity:
        """TooManyTriesError if it tries passwords; these count only if nobody is logged in by cookie."""
        passwords = self.passwords
        if passwords is None:
            return self._from_header(request)
        session = self.sessions.read(request.cookies.get(self.cookie, ""), time.time())
        account = passwords.users.accounts.get(session.name) if session else None
        # A login ends with its user, and with the password.
        if session and account and self.sessions.mark(account.hash) == session.password_mark:
            return Identity(User(account.name, account.role), session)
        if tries_password and "Authorization" in request.headers:
            return await self._from_basic(request, passwords)
        return Identity(NOBODY)

    def _from_header(self, request: web.Request) -> Identity:
        header, admins = self._options.acl_http_header, self._options.admin_users
        given = request.headers.getall(header, [])
        named, doubt = (given[0] if given else ""), ""
        if self.proxies.are_named() and not self.proxies.has(request):
            doubt = f"{header} came from an address outside {TRUSTED_FLAG}" if given else ""
            named = ""
        elif len(given) > 1:
            # One of them is the browser's own, but which one is unknown.
            named, doubt = "", f"{header} was sent {len(given)} times"
        shown = readable(named)
        if self.mode is Mode.HEADER:
            role = Role.ADMIN if named in admins else Role.VIEWER
            return Identity(User(shown, role), doubt=doubt)
        # Without --admin-user a name is only shown, and only if a trusted proxy sent it.
        return Identity(User(shown if self.proxies.are_named() else "", Role.ADMIN), doubt=doubt)

    async def _from_basic(self, request: web.Request, passwords: Passwords) -> Identity:
        name, colon, password = basic_of(request).partition(":")
        if not colon:
            return Identity(NOBODY)
        account = await passwords.check(name, password, self.proxies.address_of(request))
        if account is None:
            return Identity(User(name, Role.NOBODY), doubt="wrong name or password")
        return Identity(User(account.name, account.role))

    def reload(self) -> None:
        """Read --auth-file again, in a thread; a faulty file changes nothing and is logged."""
        if self.passwords is None:
            log.info("SIGHUP: nothing to reload")
        elif self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_users(self.passwords))

    async def _read_users(self, passwords: Passwords) -> None:
        try:
            passwords.replace(await asyncio.to_thread(read_users, self._options.auth_file))
        except OptionsError as error:
            log.error("SIGHUP: the users stay as they were: %s", error)  # noqa: TRY400 - the operator's fault
        else:
            log.info("SIGHUP: read %d users from --auth-file", len(passwords.users.accounts))

    async def close(self, _app: web.Application) -> None:
        if self._reading is not None:
            await asyncio.wait([self._reading])
        if self.passwords is not None:
            self.passwords.close()


ACCESS: Final[web.AppKey[Access]] = web.AppKey("nsqadmin.access", Access)


def access_of(request: web.Request) -> Access:
    return request.config_dict[ACCESS]


def session_of(request: web.Request) -> Session | None:
    """The request's login by cookie, as found by the middleware."""
    return request.get(SESSION_KEY)


def csrf_token(request: web.Request) -> str:
    """For the header X-CSRF-Token or the field `csrf` of every form that changes something; '' if none is needed."""
    session = session_of(request)
    return access_of(request).sessions.token(session) if session else ""


def basic_of(request: web.Request) -> str:
    """NAME:PASSWORD of HTTP Basic (RFC 7617); '' without it."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _mode(options: Options) -> Mode:
    if options.auth_file and options.admin_users:
        raise OptionsError("use --auth-file or --admin-user, not both")
    if options.admin_users and not all(options.admin_users):
        # An empty name would match everybody who has no such header.
        raise OptionsError("--admin-user must not be empty")
    if options.session_lifetime_ns <= 0:
        raise OptionsError("--session-lifetime must be more than 0")
    if options.auth_file:
        return Mode.FILE
    return Mode.HEADER if options.admin_users else Mode.OPEN


def _cookie_name(options: Options) -> str:
    # Cookies ignore ports: two nsqadmins on one machine must not take each other's for their own.
    where = f"{options.http_address} {options.base_path} {options.auth_file}"
    return f"nsqadmin_{hashlib.sha256(where.encode()).hexdigest()[:8]}"
