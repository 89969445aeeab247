"""/login and /logout, and the redirect after a login."""

import time
from typing import Final

from aiohttp import web
from yarl import URL

from nsqfast.nsqadmin.access.answers import PAGES
from nsqfast.nsqadmin.access.identity import Access, session_of
from nsqfast.nsqadmin.access.origin import FORM
from nsqfast.nsqadmin.access.passwords import Passwords, TooManyTriesError
from nsqfast.nsqadmin.access.users import USER_KEY, Account, Role, User
from nsqfast.nsqadmin.context import Context, Urls

NAME_LENGTH_MAX: Final = 128
WRONG: Final = "The name or the password is wrong."
TOO_MANY: Final = "Too many tries. Wait a minute."
RETRY_AFTER_S: Final = 60


def after_login(address: str, urls: Urls) -> str:
    """Where to go after a login requested for ADDRESS: there, unless that is another site or a login again."""
    own = urls.own(address)
    path = own.partition("?")[0]
    return urls.to("/") if path in (urls.to("/login"), urls.to("/logout")) else own


class Login:
    """Serves /login and /logout; 404 without --auth-file."""

    def __init__(self, access: Access, context: Context) -> None:
        self._access = access
        self._context = context
        self._urls = context.urls

    async def show(self, request: web.Request) -> web.Response:
        """Serve GET /login?next=PATH: the form, or the page to go to for who is logged in."""
        self._require_file()
        then = after_login(request.query.get("next", ""), self._urls)
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
        name, then = name.strip()[:NAME_LENGTH_MAX], after_login(then, self._urls)
        address = self._access.proxies.address_of(request)
        try:
            account = await passwords.check(name, password, address)
        except TooManyTriesError:
            # Only in the access log: a flood must not fill the audit.
            page = self._page(request, 429, then, name, TOO_MANY)
            page.headers["Retry-After"] = str(RETRY_AFTER_S)
            return page
        if account is None:
            request[USER_KEY] = User(name, Role.NOBODY)
            effect = {"reason": "wrong name or password"}
            await self._context.audit.note(request, "login", effect=effect, outcome="refused")
            return self._page(request, 403, then, name, WRONG)
        # Also if the password was remembered: a person who logs in has stopped guessing.
        passwords.tries.forgive(name, address)
        return await self._begin(request, account, then)

    async def _begin(self, request: web.Request, account: Account, then: str) -> web.Response:
        request[USER_KEY] = User(account.name, account.role)
        await self._context.audit.note(request, "login")
        answer = web.HTTPSeeOther(URL(then, encoded=True))
        answer.set_cookie(
            self._access.cookie,
            self._access.sessions.begin(account.name, account.hash, time.time()),
            max_age=int(self._access.sessions.lifetime_s),
            path=self._urls.base or "/",
            httponly=True,
            samesite="Lax",
            secure=self._access.proxies.is_https(request),
        )
        raise answer

    async def leave(self, request: web.Request) -> web.Response:
        """Serve POST /logout: end the login, and go to the form."""
        self._require_file()
        session = session_of(request)
        if session is not None:
            self._access.sessions.end(session, time.time())
            await self._context.audit.note(request, "logout")
        answer = web.HTTPSeeOther(self._urls.to("/login"))
        answer.del_cookie(self._access.cookie, path=self._urls.base or "/")
        raise answer

    def _require_file(self) -> Passwords:
        if self._access.passwords is None:
            raise web.HTTPNotFound(text="There is no login: no --auth-file is configured.")
        return self._access.passwords

    def _page(
        self, request: web.Request, status: int, then: str, name: str, text: str
    ) -> web.Response:
        values = {"then": then, "name": name, "text": text}
        page = request.config_dict[PAGES].page(request, "login.html", "Log in", values)
        return web.Response(status=status, text=page, content_type="text/html")
