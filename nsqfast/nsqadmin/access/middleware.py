"""Add all of access to an application. A request passes, from the outside in:

answers       an id, a line in the log, an answer even for errors
know_user     identifies the sender; one who has to log in first gets no further
check_origin  refuses requests under a name that is not ours, and those that another site made a browser send
a handler     checks the user's permission with access.permissions
"""

import logging
from typing import Final, NoReturn
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from nsqfast.net.browsers import FLAG, SAFE_METHODS
from nsqfast.nsqadmin.access.answers import Answers, SecurityHeaders, own_path
from nsqfast.nsqadmin.access.identity import ACCESS, NOBODY, SESSION_KEY, Access, Mode, session_of
from nsqfast.nsqadmin.access.login import RETRY_AFTER_S, TOO_MANY, Login
from nsqfast.nsqadmin.access.origin import (
    FORM,
    OwnNames,
    foreign_reason,
    has_known_type,
    host_of,
    peer_of,
)
from nsqfast.nsqadmin.access.passwords import TooManyTriesError
from nsqfast.nsqadmin.access.permissions import note_refusal
from nsqfast.nsqadmin.access.users import DOUBT_KEY, USER_KEY, Role, user_of
from nsqfast.nsqadmin.context import Context
from nsqfast.wire.gotext import quote as quoted
from nsqfast.wire.refusals import REFUSED

log = logging.getLogger("nsqadmin")

OPEN_PATHS: Final = frozenset(("/login", "/ping", "/livez", "/readyz", "/favicon.ico", "/ui/theme"))
OPEN_FOLDERS: Final = ("/static/",)  # the login page uses the same styles
JSON_PATHS: Final = ("/api/", "/ui/", "/config/", "/metrics")


def add_access(app: web.Application, context: Context) -> Access:
    """Call this before any other part adds its routes; OptionsError."""
    access = Access(context.options)
    app[ACCESS] = access
    answers = Answers(access.proxies)
    checks = RequestChecks(access, context)
    app.middlewares.extend((answers.answer, checks.know_user, checks.check_origin))
    app.on_response_prepare.append(SecurityHeaders(context.options).on_prepare)
    app.on_response_prepare.append(answers.on_prepare)
    app.on_cleanup.append(access.close)
    login = Login(access, context)
    app.router.add_get("/login", login.show)
    app.router.add_post("/login", login.enter)
    app.router.add_post("/logout", login.leave)
    return access


class RequestChecks:
    def __init__(self, access: Access, context: Context) -> None:
        self._access = access
        self._base = context.urls.base
        self._audit = context.audit
        self._names = OwnNames(context.options)

    @web.middleware
    async def know_user(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Identify the user; handlers and templates read the result with user_of(request)."""
        path = own_path(request)
        request[USER_KEY] = NOBODY
        try:
            found = await self._access.identify(request, tries_password=not _is_open(path))
        except TooManyTriesError:
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            raise web.HTTPTooManyRequests(text=TOO_MANY, headers=headers) from None
        request[USER_KEY] = found.user
        if found.session is not None:
            request[SESSION_KEY] = found.session
        request[DOUBT_KEY] = found.doubt
        if found.user.role is Role.NOBODY and found.doubt:
            effect = {"reason": found.doubt}
            await self._audit.note(request, "login", effect=effect, outcome="refused")
        if found.user.role is Role.NOBODY and not _is_open(path):
            self._ask_to_log_in(request, path)
        return await handler(request)

    def _ask_to_log_in(self, request: web.Request, path: str) -> None:
        if path.startswith(JSON_PATHS):
            # /ui belongs to our own pages: a browser must not open its own password window.
            headers = (
                {} if path.startswith("/ui/") else {"WWW-Authenticate": 'Basic realm="nsqadmin"'}
            )
            raise web.HTTPUnauthorized(text="UNAUTHORIZED", headers=headers)
        if request.method not in SAFE_METHODS:
            raise web.HTTPUnauthorized(text="UNAUTHORIZED")
        then = quote(request.rel_url.raw_path_qs, safe="")
        raise web.HTTPSeeOther(URL(f"{self._base}/login?next={then}", encoded=True))

    @web.middleware
    async def check_origin(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """All but the Host and /config only for requests that may change something."""
        # A login belongs to the host name at which it was made, and is not valid for another.
        if self._access.mode is not Mode.FILE and not self._names.has(request):
            self._refuse_host(request)
        path = own_path(request)
        # Behind a proxy on this machine everybody has the address that may configure.
        if path.startswith("/config/") and not user_of(request).is_admin:
            await note_refusal(request, "FORBIDDEN")
            raise web.HTTPForbidden(text="FORBIDDEN")
        if request.method in SAFE_METHODS:
            return await handler(request)
        reason = foreign_reason(request, self._access.proxies)
        if reason:
            REFUSED["cross_site"] += 1
        if not reason and not await self._has_token(request):
            reason = "the token of the page (X-CSRF-Token or csrf) is missing or old: load it again"
        if reason:
            await note_refusal(request, reason)
            raise web.HTTPForbidden(text=reason)
        if path.startswith("/ui/") and not has_known_type(request):
            raise web.HTTPUnsupportedMediaType(text=f"The body has to be JSON or {FORM}.")
        return await handler(request)

    def _refuse_host(self, request: web.Request) -> NoReturn:
        REFUSED["unknown_host"] += 1
        log.warning(
            "HTTP: a request of client(%s) is refused, its Host is %s: %s adds a name",
            peer_of(request),
            quoted(host_of(request)),
            FLAG,
        )
        raise web.HTTPForbidden(text="UNKNOWN_HOST")

    async def _has_token(self, request: web.Request) -> bool:
        session = session_of(request)
        if session is None:
            return True
        token = request.headers.get("X-CSRF-Token", "")
        if not token and request.content_type == FORM:
            token = str((await request.post()).get("csrf", ""))
        return self._access.sessions.is_token(session, token)


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDERS)
