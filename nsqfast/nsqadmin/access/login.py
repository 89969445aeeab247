"""/login and /logout, and where a login leads to."""

import time
from typing import Final

from aiohttp import web
from yarl import URL

from nsqfast.nsqadmin.access.answers import PAGES
from nsqfast.nsqadmin.access.identity import Access, session_of
from nsqfast.nsqadmin.access.passwords import Passwords, TooManyTriesError
from nsqfast.nsqadmin.access.roles import USER_KEY, Role, User
from nsqfast.nsqadmin.access.sameorigin import FORM
from nsqfast.nsqadmin.access.users import Account
from nsqfast.nsqadmin.context import Context

NEXT_LENGTH_MAX: Final = 2048
NAME_LENGTH_MAX: Final = 128
WRONG: Final = "The name or the password is wrong."
TOO_MANY: Final = "Too many tries. Wait a minute."
RETRY_AFTER_S: Final = 60


def local_path(text: str, base: str) -> str:
    """TEXT if it is a path of our own below --base-path, else our first page: a login must not lead to another site.

    Browsers read `\\` as `/` and skip tabs and ends of lines (https://url.spec.whatwg.org/), so what has any is none.
    """
    first = f"{base}/"
    is_plain = text.isascii() and text.isprintable() and "\\" not in text and " " not in text
    if not is_plain or len(text) > NEXT_LENGTH_MAX or text.startswith("//"):
        return first
    if text != base and not text.startswith(first):
        return first
    path = text.partition("?")[0]
    if path in (f"{base}/login", f"{base}/logout"):
        return first
    return text or first


class Login:
    """Handlers; 404 where there is no --auth-file."""

    def __init__(self, access: Access, context: Context) -> None:
        self._access = access
        self._context = context
        self._base = context.urls.base

    async def show(self, request: web.Request) -> web.Response:
        """GET /login?next=PATH"""
        self._require_file()
        then = local_path(request.query.get("next", ""), self._base)
        if session_of(request) is not None:
            raise web.HTTPSeeOther(URL(then, encoded=True))
        return self._page(request, 200, then, "", "")

    async def enter(self, request: web.Request) -> web.Response:
        """POST /login with name, password and next."""
        passwords = self._require_file()
        if request.content_type != FORM:
            raise web.HTTPUnsupportedMediaType(text=f"The body has to be {FORM}.")
        form = await request.post()
        name, password, then = (str(form.get(key, "")) for key in ("name", "password", "next"))
        name, then = name.strip()[:NAME_LENGTH_MAX], local_path(then, self._base)
        try:
            account = await self._access.check_password(request, passwords, name, password)
        except TooManyTriesError:
            # In the access log alone: whoever floods us must not fill the audit.
            page = self._page(request, 429, then, name, TOO_MANY)
            page.headers["Retry-After"] = str(RETRY_AFTER_S)
            return page
        if account is None:
            request[USER_KEY] = User(name, Role.NOBODY)
            effect: dict[str, object] = {"reason": "wrong name or password"}
            await self._context.audit.note(request, "login", {}, effect=effect, outcome="refused")
            return self._page(request, 403, then, name, WRONG)
        # Also where the password was known to be right: a person who logs in has stopped guessing.
        passwords.tries.forgive(name, self._access.proxies.address_of(request))
        return await self._begin(request, account, then)

    async def _begin(self, request: web.Request, account: Account, then: str) -> web.Response:
        request[USER_KEY] = User(account.name, account.role)
        await self._context.audit.note(request, "login", {}, outcome="ok")
        answer = web.HTTPSeeOther(URL(then, encoded=True))
        answer.set_cookie(
            self._access.cookie,
            self._access.sessions.begin(account.name, account.hash, time.time()),
            max_age=int(self._access.sessions.lifetime_s),
            path=self._base or "/",
            httponly=True,
            samesite="Lax",
            secure=self._access.proxies.is_https(request),
        )
        raise answer

    async def leave(self, request: web.Request) -> web.Response:
        """POST /logout"""
        self._require_file()
        session = session_of(request)
        if session is not None:
            self._access.sessions.end(session, time.time())
            await self._context.audit.note(request, "logout", {}, outcome="ok")
        answer = web.HTTPSeeOther(f"{self._base}/login")
        answer.del_cookie(self._access.cookie, path=self._base or "/")
        raise answer

    def _require_file(self) -> Passwords:
        if self._access.passwords is None:
            raise web.HTTPNotFound(text="There is no login: no --auth-file is configured.")
        return self._access.passwords

    def _page(
        self, request: web.Request, status: int, then: str, name: str, text: str
    ) -> web.Response:
        page = request.config_dict[PAGES].login(request, then, name, text)
        return web.Response(status=status, text=page, content_type="text/html")
