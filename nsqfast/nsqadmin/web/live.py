"""GET /ui/live?view=PATH&since=TICK: changes of an open page since the tick that it shows.

204 when nothing has, 404 when the page's topic, channel or node is gone. `next_ms` says when to ask again: shortly
after the server's next poll, so asking more often gains nothing. It is also in the header Nsqadmin-Next-Ms, and the
time of the tick is in Nsqadmin-At.
"""

import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.permissions import refuse
from nsqfast.nsqadmin.access.users import user_of
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.web.request import Query
from nsqfast.nsqadmin.web.view import Page, PageNotFoundError, Views

AFTER_POLL_S = 0.1  # the duration of a poll of a medium-sized cluster
NEXT_S_MIN = 0.5


class Live:
    """The handler."""

    def __init__(self, context: Context, pages: Sequence[Page], views: Views) -> None:
        self._context = context
        self._pages = [page for page in pages if page.is_live]
        self._views = views

    def find(self, path: str) -> tuple[Page, dict[str, str]]:
        """The page at a quoted path, including --base-path; LookupError if there is none, or it is not live."""
        below = self._context.urls.below(path)
        for page in self._pages:
            match = page.match(below or "")
            if match is not None:
                return page, match
        raise LookupError(path)

    async def find_for(self, request: web.Request, path: str) -> tuple[Page, dict[str, str]]:
        """Like `find`; 403 if the page is for admins only and the user is not one."""
        page, match = self.find(path)
        if page.is_for_admins and not user_of(request).is_admin:
            await refuse(request)
        return page, match

    def next_ms(self) -> int:
        """Milliseconds from now to shortly after the next tick."""
        poller = self._context.poller
        left_s = poller.cluster.at + poller.interval_s + AFTER_POLL_S - time.time()
        return int(1000 * min(max(left_s, NEXT_S_MIN), poller.interval_s + AFTER_POLL_S))

    async def serve(self, request: web.Request) -> web.Response:
        """See the module."""
        address = urlsplit(request.query.get("view", ""))
        since = request.query.get("since", "")
        try:
            page, match = await self.find_for(request, address.path)
            made = await self._views.get(
                page, match, Query.parse(address.query), user_of(request).role
            )
        except (LookupError, PageNotFoundError) as error:
            return web.json_response({"message": f"NOT_FOUND: {error}"}, status=404)
        self._context.poller.seen()
        next_ms = self.next_ms()
        headers = {
            "Cache-Control": "no-store",
            "Nsqadmin-Next-Ms": str(next_ms),
            "Nsqadmin-At": f"{made.cluster.at:.3f}",
        }
        if since.isdigit() and len(since) < 16 and int(since) >= made.changed:
            return web.Response(status=204, headers=headers)
        head = {"tick": made.cluster.tick, "at": made.cluster.at, "next_ms": next_ms}
        body = msgspec.json.encode(head)[:-1] + b"," + made.body[1:]
        return web.Response(body=body, content_type="application/json", headers=headers)
