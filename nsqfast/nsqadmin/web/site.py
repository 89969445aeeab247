"""The pages' routes: a View for the address, its template around it, and the page for unknown addresses.

GET /ui/live?view=PATH&since=TICK has the changes of an open page since the tick that it shows: 204 when there are none,
404 when the page's topic, channel or node is gone. `next_ms` says when to ask again: shortly after the server's next
poll, so asking more often gains nothing. It is also in the header Nsqadmin-Next-Ms, and the time of the tick is in
Nsqadmin-At.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.answers import PAGES as PAGES_KEY
from nsqfast.nsqadmin.access.identity import NOBODY, access_of, csrf_token, session_of
from nsqfast.nsqadmin.access.permissions import admin_only, export_only, refuse
from nsqfast.nsqadmin.access.users import USER_KEY, Role, user_of
from nsqfast.nsqadmin.cluster.model import EMPTY
from nsqfast.nsqadmin.context import Context, context_of
from nsqfast.nsqadmin.web.charts import SeriesHandler
from nsqfast.nsqadmin.web.export import export_table
from nsqfast.nsqadmin.web.pages.audit import AUDIT_PAGE
from nsqfast.nsqadmin.web.pages.nodes import LOOKUP_PAGE, NODE_PAGE, NODES_PAGE
from nsqfast.nsqadmin.web.pages.overview import COUNTER_PAGE, OVERVIEW_PAGE
from nsqfast.nsqadmin.web.pages.problems import PROBLEMS_PAGE
from nsqfast.nsqadmin.web.pages.topics import CHANNEL_PAGE, TOPIC_PAGE, TOPICS_PAGE
from nsqfast.nsqadmin.web.render import Assets, make_environment, render
from nsqfast.nsqadmin.web.request import Query
from nsqfast.nsqadmin.web.view import MadeView, Page, PageNotFoundError, View, Views, add_banner

PAGES = (
    OVERVIEW_PAGE,
    TOPICS_PAGE,
    TOPIC_PAGE,
    CHANNEL_PAGE,
    NODES_PAGE,
    NODE_PAGE,
    LOOKUP_PAGE,
    COUNTER_PAGE,
    PROBLEMS_PAGE,
    AUDIT_PAGE,
)
FIRST_TICK_S = 2.0  # how long a page waits for it after the start
AFTER_POLL_S = 0.1  # the duration of a poll of a medium-sized cluster
NEXT_S_MIN = 0.5
SECTIONS = (
    ("overview", "Overview", "/"),
    ("topics", "Topics", "/topics"),
    ("nodes", "Nodes", "/nodes"),
    ("problems", "Problems", "/problems"),
    ("policies", "Policies", "/policies"),
    ("audit", "Audit", "/audit"),
)
MORE = (("lookup", "Lookup", "/lookup"), ("counter", "Counter", "/counter"))  # at the foot
THEMES = ("auto", "light", "dark")
THEME_COOKIE = "nsqadmin_theme"
YEAR_S = 365 * 86400
FOR_ADMINS = {page.section for page in PAGES if page.is_for_admins} | {"policies"}


class Site:
    """Everything that people look at; other parts add pages to it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._assets = Assets(context.urls, context.options.dev_static_dir)
        self._views = Views(context)
        self._environment = make_environment(context, self._assets)

    def add_routes(self, app: web.Application) -> None:
        for page in PAGES:
            serve = functools.partial(self.serve, page)
            app.router.add_get(page.route, admin_only(serve) if page.is_for_admins else serve)
        if self._context.urls.base:
            app.router.add_get("", self._go_home)
        app.router.add_get("/static/{version}/{name:.+}", self._assets.serve)
        app.router.add_get("/ui/live", self.serve_changes)
        app.router.add_get("/ui/series", SeriesHandler(self._context).serve)
        app.router.add_get("/ui/theme", set_theme)
        export = export_only(functools.partial(export_table, self.view_at))
        app.router.add_get("/ui/export", export)
        app[PAGES_KEY] = self

    async def serve(self, page: Page, request: web.Request) -> web.Response:
        """Serve a page; after the start it waits for the first tick."""
        query = Query(request.query.items())
        match = dict(request.match_info)
        poller = self._context.poller
        poller.seen()
        if not poller.cluster.tick:
            # Right after the start nothing is known, and every object would be reported as missing.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_TICK_S):
                    await poller.next_tick()
        try:
            made = await self._views.get(page, match, query, user_of(request).role)
        except PageNotFoundError as error:
            return await self.not_found(request, error)
        values = {"page": page, "query": query, "tick": made.changed, "at": made.cluster.at}
        return await self.respond(request, page.template, made.view, values)

    async def rows_of(self, view: str, table: str, role: Role) -> list[dict[str, str]]:
        """The data of all rows that a page's table finds; LookupError if there is no such page or table."""
        page, match, query = self.find(view)
        made = await self._views.get(page, match, query, role)
        found = made.view.tables[table]
        return [found.spec.data(item) if found.spec.data else {} for item in found.matched]

    def find(self, view: str) -> tuple[Page, dict[str, str], Query]:
        """The live page at a quoted address, which includes --base-path; LookupError if there is none."""
        address = urlsplit(view)
        below = self._context.urls.below(address.path)
        for page in PAGES:
            match = page.match(below or "")
            if match is not None:
                return page, match, Query(parse_qsl(address.query))
        raise LookupError(address.path)

    async def view_at(self, request: web.Request, view: str) -> MadeView:
        """The View of the page at an address; LookupError like `find`, 403 if the page is for admins only."""
        page, match, query = self.find(view)
        if page.is_for_admins and not user_of(request).is_admin:
            await refuse(request)
        return await self._views.get(page, match, query, user_of(request).role)

    def next_ms(self) -> int:
        """Milliseconds from now to shortly after the next tick."""
        poller = self._context.poller
        left_s = poller.cluster.at + poller.interval_s + AFTER_POLL_S - time.time()
        return int(1000 * min(max(left_s, NEXT_S_MIN), poller.interval_s + AFTER_POLL_S))

    async def serve_changes(self, request: web.Request) -> web.Response:
        since = request.query.get("since", "")
        try:
            made = await self.view_at(request, request.query.get("view", ""))
        except LookupError as error:
            return web.json_response({"message": f"NOT_FOUND: {error}"}, status=404)
        self._context.poller.seen()
        next_ms = self.next_ms()
        headers = {
            "Nsqadmin-Next-Ms": str(next_ms),
            "Nsqadmin-At": f"{made.cluster.at:.3f}",
        }
        if since.isdigit() and len(since) < 16 and int(since) >= made.changed:
            return web.Response(status=204, headers=headers)
        head = {"tick": made.cluster.tick, "at": made.cluster.at, "next_ms": next_ms}
        body = msgspec.json.encode(head)[:-1] + b"," + made.body[1:]
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def respond(
        self,
        request: web.Request,
        template: str,
        view: View,
        values: dict[str, Any],
        status: int = 200,
    ) -> web.Response:
        if "banner" not in view.shown:  # pages that are not live have none
            add_banner(view, self._context.poller.cluster, self._context.problems.found)
        everywhere = self.values_for(request, view)
        text = await render(self._environment, template, everywhere | values)
        return web.Response(text=text, status=status, content_type="text/html")

    def values_for(self, request: web.Request, view: View) -> dict[str, Any]:
        """The values for base.html; also for a request that failed before its sender was identified."""
        poller = self._context.poller
        user = request.get(USER_KEY, NOBODY)
        return {
            "view": view,
            "page": None,
            "tick": 0,
            "at": 0.0,
            "query": Query(()),
            "user": user,
            "theme": theme_of(request),
            "csrf": csrf_token(request),
            "has_login": session_of(request) is not None,
            "access_mode": access_of(request).mode.value,
            "sections": [each for each in SECTIONS if user.is_admin or each[0] not in FOR_ADMINS],
            "more": MORE,
            "here": request.raw_path,
            # Users who have to log in first do not see problems, because those name nodes.
            "cluster": EMPTY if user.role is Role.NOBODY else poller.cluster,
            "interval_s": poller.interval_s,
            "next_ms": self.next_ms(),
            "utc_offset_s": time.localtime().tm_gmtoff,
        }

    def page(
        self, request: web.Request, template: str, title: str, values: Mapping[str, object]
    ) -> str:
        everywhere = self.values_for(request, View(title))
        return self._environment.get_template(template).render({**everywhere, **values})

    async def not_found(self, request: web.Request, error: PageNotFoundError) -> web.Response:
        """The page for an object that the cluster does not have."""
        text = f"The cluster has no {error.kind} with the name {error.name}."
        values = {"text": text, "near": error.near, "status": 404}
        view = View(f"No such {error.kind}")
        return await self.respond(request, "error.html", view, values, 404)

    async def _go_home(self, _request: web.Request) -> web.Response:
        raise web.HTTPFound(self._context.urls.to("/"))


def theme_of(request: web.Request) -> str:
    theme = request.cookies.get(THEME_COOKIE, "")
    return theme if theme in THEMES else "auto"


async def set_theme(request: web.Request) -> web.Response:
    """GET /ui/theme?to=dark&next=PATH, for browsers without scripts."""
    urls = context_of(request).urls
    theme = request.query.get("to", "")
    answer = web.HTTPSeeOther(urls.own(request.query.get("next", "")))
    if theme in THEMES:
        answer.set_cookie(THEME_COOKIE, theme, path=urls.to("/"), max_age=YEAR_S, samesite="Lax")
    raise answer
