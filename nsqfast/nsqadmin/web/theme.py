"""Light, dark, or the system's choice: a cookie, so that the server renders the right one at once."""

from typing import Literal

from aiohttp import web

from nsqfast.nsqadmin.context import context_of

Theme = Literal["auto", "light", "dark"]
COOKIE = "nsqadmin_theme"
YEAR_S = 365 * 86400


def theme_of(request: web.Request) -> Theme:
    """The value of data-theme."""
    match request.cookies.get(COOKIE):
        case "light":
            return "light"
        case "dark":
            return "dark"
    return "auto"


async def set_theme(request: web.Request) -> web.Response:
    """GET /ui/theme?to=dark&next=PATH, for browsers without scripts."""
    urls = context_of(request).urls
    theme = request.query.get("to", "")
    answer = web.HTTPSeeOther(urls.own(request.query.get("next", "")))
    if theme in ("auto", "light", "dark"):
        answer.set_cookie(COOKIE, theme, path=urls.to("/"), max_age=YEAR_S, samesite="Lax")
    raise answer
