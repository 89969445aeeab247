"""Permissions of users, by role and flags.

A handler that is not for everybody is registered through `admin_only` or a similar wrapper, which answers 403 and
audits that.
"""

import functools
from collections.abc import Callable
from typing import NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler

from nsqfast.nsqadmin.access.users import DOUBT_KEY, Role, user_of
from nsqfast.nsqadmin.context import context_of


def may_see_bodies(request: web.Request) -> bool:
    """Admins, and viewers with --viewer-sees-bodies."""
    user = user_of(request)
    return user.is_admin or (
        user.role is Role.VIEWER and context_of(request).options.viewer_sees_bodies
    )


def may_export(request: web.Request) -> bool:
    """Everybody who may read, unless --no-export is given."""
    return user_of(request).role is not Role.NOBODY and not context_of(request).options.no_export


def admin_only(handler: Handler) -> Handler:
    """403 for everybody else, audited; every handler that changes something is registered through this."""
    return _require(handler, lambda request: user_of(request).is_admin)


def export_only(handler: Handler) -> Handler:
    """Like admin_only, for users who may export."""
    return _require(handler, may_export)


def _require(handler: Handler, is_allowed: Callable[[web.Request], bool]) -> Handler:
    @functools.wraps(handler)
    async def checked(request: web.Request) -> web.StreamResponse:
        if not is_allowed(request):
            await refuse(request)
        return await handler(request)

    return checked


async def refuse(request: web.Request) -> NoReturn:
    """Answer 403, and audit it."""
    await note_refusal(request)
    # The error code of nsqadmin's JSON API; the error page shows it as a sentence.
    raise web.HTTPForbidden(text="FORBIDDEN")


async def note_refusal(request: web.Request, reason: str = "") -> None:
    """The action is the requested route, the target the values of its placeholders."""
    resource = request.match_info.route.resource
    path = resource.canonical if resource else request.path
    reason = reason or request.get(DOUBT_KEY, "")
    effect = {"reason": reason} if reason else {}
    note, action = context_of(request).audit.note, f"{request.method} {path}"
    await note(request, action, request.match_info, effect=effect, outcome="refused")
