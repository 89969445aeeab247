"""GET /ui/problems, the mute of one of them, and GET /metrics."""

import contextlib
from typing import Any

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.alerts.metrics import Metrics
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.live.problems import Problem, Severity

HOURS_MAX = 7 * 24
FORM = "application/x-www-form-urlencoded"


class Mute(msgspec.Struct):
    """The body of a mute; an unmute has no hours."""

    id: str
    hours: float = 1.0


class ProblemList(msgspec.Struct):
    """The answer of /ui/problems."""

    tick: int  # the tick that was judged
    total: int  # `problems` may have fewer, the worst
    counts: dict[Severity, int]
    problems: list[Problem]


def add_routes(app: web.Application, context: Context) -> None:
    """Call this after adding the parts whose middlewares the counted requests pass."""
    metrics = Metrics(context)
    app.middlewares.insert(0, metrics.count_requests)
    app.router.add_get("/metrics", metrics.answer)
    handlers = Handlers(context)
    app.router.add_get("/ui/problems", handlers.list)
    add_post = app.router.add_post
    add_post("/ui/problems/mute", admin_only(handlers.mute))
    add_post("/ui/problems/unmute", admin_only(handlers.unmute))


class Handlers:
    """The handlers of one nsqadmin."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def list(self, _request: web.Request) -> web.Response:
        """All problems, including muted ones; a request counts as a viewer, so that they are fresh."""
        self._context.poller.seen()
        problems = self._context.problems
        return _json(
            ProblemList(
                tick=problems.tick,
                total=problems.total,
                counts=problems.counts,
                problems=problems.found,
            )
        )

    async def mute(self, request: web.Request) -> web.Response:
        """Mute for some hours, by default one."""
        wanted = await _read(request)
        if not 0 < wanted.hours <= HOURS_MAX:
            raise web.HTTPBadRequest(text=f"hours has to be above 0 and at most {HOURS_MAX}")
        found = self._context.problems.mute(wanted.id, wanted.hours * 3600)
        return await self._answer(request, "mute_problem", wanted, found, {"hours": wanted.hours})

    async def unmute(self, request: web.Request) -> web.Response:
        """Unmute at once."""
        wanted = await _read(request)
        found = self._context.problems.unmute(wanted.id)
        return await self._answer(request, "unmute_problem", wanted, found, {})

    async def _answer(
        self,
        request: web.Request,
        action: str,
        wanted: Mute,
        found: Problem | None,
        effect: dict[str, object],
    ) -> web.Response:
        audit = self._context.audit
        await self._context.problems.mutes.save()
        if found is None:
            await audit.note(request, action, {"problem": wanted.id}, outcome="failed")
            raise web.HTTPNotFound(text="there is no such problem now")
        target = {
            "problem": found.rule,
            "topic": found.topic,
            "channel": found.channel,
            "node": found.node,
        }
        given = {name: value for name, value in target.items() if value}
        await audit.note(request, action, given, effect=effect, outcome="ok")
        if request.content_type == FORM:
            raise web.HTTPSeeOther(self._context.urls.to("/problems"))
        return _json(found)


async def _read(request: web.Request) -> Mute:
    """Read JSON, or the form of a page without scripts."""
    if request.content_type == FORM:
        given: dict[str, Any] = {name: str(value) for name, value in (await request.post()).items()}
        with contextlib.suppress(ValueError):
            given["hours"] = float(given["hours"]) if "hours" in given else 1.0
        try:
            return msgspec.convert(given, Mute)
        except msgspec.ValidationError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
    try:
        return msgspec.json.decode(await request.read(), type=Mute)
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=str(error)) from None


def _json(answer: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
