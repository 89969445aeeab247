"""GET /ui/problems, what mutes them, and GET /metrics; docs/ADMIN.md has the requests of scripts."""

import time

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.answers import answer_json
from nsqfast.nsqadmin.access.origin import FORM, readable
from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.access.users import user_of
from nsqfast.nsqadmin.actions.order import read_body
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.metrics import Metrics
from nsqfast.nsqadmin.problems.silences import SILENCES_MAX, Scope, Silence

HOURS_MAX = 7 * 24
REASON_SIZE_MAX = 200


class Mute(msgspec.Struct):
    """The body of a mute; that of its end has only the id."""

    id: str
    hours: float = 1.0
    reason: str = ""


class Wanted(msgspec.Struct):
    """The body of a silence; that of its end has only scope and target."""

    scope: Scope
    target: str = ""
    hours: float = 0.0
    reason: str = ""


def add_routes(app: web.Application, context: Context) -> None:
    """Call this after adding the parts whose middlewares the counted requests pass."""
    metrics = Metrics(context)
    app.middlewares.insert(0, metrics.count_requests)
    app.router.add_get("/metrics", metrics.answer)
    handlers = Handlers(context)
    app.router.add_get("/ui/problems", handlers.list)
    app.router.add_get("/ui/silences", handlers.list_silences)
    add_post = app.router.add_post
    add_post("/ui/silences", admin_only(handlers.silence))
    add_post("/ui/silences/end", admin_only(handlers.end_silence))
    add_post("/ui/problems/mute", admin_only(handlers.mute))
    add_post("/ui/problems/unmute", admin_only(handlers.unmute))
    add_post("/ui/problems/test", admin_only(handlers.test_webhook))


class Handlers:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def list(self, _request: web.Request) -> web.Response:
        """All problems, including muted ones; a request counts as a viewer, so that they are fresh."""
        self._context.poller.seen()
        problems = self._context.problems
        return answer_json(
            {
                "tick": problems.tick,  # that was judged
                "total": problems.total,  # `problems` may have fewer, the worst
                "counts": problems.counts,
                "problems": problems.found,
            }
        )

    async def list_silences(self, _request: web.Request) -> web.Response:
        now = time.time()
        silences = [each for each in self._context.problems.silences if each.until > now]
        return answer_json({"silences": silences})

    async def mute(self, request: web.Request) -> web.Response:
        """Silence a problem; answers with the problem."""
        wanted = await read_body(request, Mute)
        silence = Wanted(Scope.PROBLEM, wanted.id, wanted.hours, wanted.reason)
        await self._begin(request, silence)
        return self._answer(request, self._context.problems.find(wanted.id))

    async def unmute(self, request: web.Request) -> web.Response:
        """End the silence of a problem; answers with the problem."""
        wanted = await read_body(request, Mute)
        await self._end(request, Scope.PROBLEM, wanted.id)
        return self._answer(request, self._context.problems.find(wanted.id))

    async def silence(self, request: web.Request) -> web.Response:
        """Silence a node, a topic or everything; answers with the silence."""
        wanted = await read_body(request, Wanted)
        if not wanted.reason.strip():
            raise web.HTTPBadRequest(text="Tell the reason: whoever is on call reads it.")
        return self._answer(request, await self._begin(request, wanted))

    async def end_silence(self, request: web.Request) -> web.Response:
        """End a silence; answers with an empty object."""
        wanted = await read_body(request, Wanted)
        await self._end(request, wanted.scope, wanted.target)
        return self._answer(request, {})

    async def test_webhook(self, request: web.Request) -> web.Response:
        """Send something to --problem-webhook; 502 says why that failed."""
        trouble = await self._context.webhook.test(readable(user_of(request).name))
        note, effect = self._context.audit.note, {"reason": trouble} if trouble else {}
        await note(request, "test_webhook", effect=effect, outcome="failed" if trouble else "ok")
        if trouble:
            raise web.HTTPBadGateway(text=f"The webhook failed: {trouble}")
        return self._answer(request, {})

    async def _begin(self, request: web.Request, wanted: Wanted) -> Silence:
        if not 0 < wanted.hours <= HOURS_MAX:
            raise web.HTTPBadRequest(text=f"hours has to be above 0 and at most {HOURS_MAX}")
        reason = " ".join(readable(wanted.reason).split())
        if len(reason) > REASON_SIZE_MAX:
            raise web.HTTPBadRequest(text=f"reason: at most {REASON_SIZE_MAX} characters")
        problems, action = self._context.problems, _word(wanted.scope, "mute_problem", "silence")
        target = self._describe(wanted.scope, wanted.target)
        if target is None:
            audited = {wanted.scope.value: wanted.target}
            await self._context.audit.note(request, action, audited, outcome="failed")
            raise web.HTTPNotFound(text=f"there is no such {wanted.scope.value} now")
        now = time.time()
        until = now + wanted.hours * 3600
        user = readable(user_of(request).name)
        silence = Silence(wanted.scope, wanted.target, until, reason, user, now)
        if not problems.silence(silence):
            text = f"There are {SILENCES_MAX:,} silences: end some of them."
            raise web.HTTPConflict(text=text)
        await problems.silences.save()
        effect = {"hours": wanted.hours} | ({"reason": reason} if reason else {})
        await self._context.audit.note(request, action, target, effect=effect, outcome="ok")
        return silence

    async def _end(self, request: web.Request, scope: Scope, target: str) -> None:
        is_ended = self._context.problems.end_silence(scope, target)
        action = _word(scope, "unmute_problem", "end_silence")
        described = self._describe(scope, target)
        is_known = is_ended or described is not None
        audited = described or {scope.value: target}
        await self._context.audit.note(
            request, action, audited, outcome="ok" if is_known else "failed"
        )
        if not is_known:
            raise web.HTTPNotFound(text=f"there is no such {scope.value} now")
        await self._context.problems.silences.save()

    def _describe(self, scope: Scope, target: str) -> dict[str, str] | None:
        """For the audit; None for what does not exist."""
        cluster = self._context.poller.cluster
        if scope is Scope.EVERYTHING:
            return {"scope": scope.value} if not target else None
        if scope is Scope.PROBLEM:
            found = self._context.problems.find(target)
            if found is None:
                return None
            names = {"topic": found.topic, "channel": found.channel, "node": found.node}
            return {"problem": found.rule, **{kind: name for kind, name in names.items() if name}}
        known = cluster.nodes if scope is Scope.NODE else cluster.topics
        return {scope.value: target} if target in known else None

    def _answer(self, request: web.Request, answer: object) -> web.Response:
        self._context.poller.ask_now()  # open pages show it with the next tick
        if request.content_type == FORM:
            raise web.HTTPSeeOther(self._context.urls.to("/problems"))
        return answer_json(answer)


def _word(scope: Scope, of_problem: str, of_others: str) -> str:
    return of_problem if scope is Scope.PROBLEM else of_others
