"""Endpoints for the pages' dialogs and menus, JSON in both directions; admins only, with readable error texts.

docs/ADMIN.md has their requests and answers.
"""

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.answers import answer_json
from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.access.users import user_of
from nsqfast.nsqadmin.actions.effect import SetEffect, effect_of, effect_of_set
from nsqfast.nsqadmin.actions.jobs import Job, Jobs, new_id
from nsqfast.nsqadmin.actions.nodes import NodeActions
from nsqfast.nsqadmin.actions.order import (
    OPPOSITE,
    Action,
    Order,
    audit_word,
    check_name,
    check_order,
    read_json,
    read_order,
)
from nsqfast.nsqadmin.actions.publish import Publish
from nsqfast.nsqadmin.actions.targets import RowsOf, Target, Targets, TargetSets, hash_of
from nsqfast.nsqadmin.context import Context

Begin = Callable[[], Awaitable[Job]]
CHANGED = "The set has changed since you looked: look again."


class SetChangedError(Exception):
    """The set changed between the dialog and its confirmation; `effect` is that of the current set."""

    def __init__(self, effect: SetEffect) -> None:
        super().__init__(CHANGED)
        self.effect = effect


class JobOrder(msgspec.Struct):
    """The body of retry, stop and undo; the id is that of the new job."""

    id: str = ""


class Actions:
    """Serves /ui/effect and /ui/actions: dialogs, and the jobs that they begin."""

    def __init__(self, context: Context, rows_of: RowsOf) -> None:
        self._context = context
        self._targets = Targets(context)
        self._sets = TargetSets(context, rows_of)
        self._jobs = Jobs(context)

    def add_routes(self, app: web.Application) -> None:
        router = app.router
        router.add_get("/ui/effect", admin_only(self.show_effect))
        router.add_post("/ui/effect", admin_only(self.count_effect))
        router.add_post("/ui/actions", admin_only(self.begin))
        router.add_get("/ui/actions/{id}", admin_only(self.show))
        router.add_post("/ui/actions/{id}/stop", admin_only(self.stop))
        router.add_post("/ui/actions/{id}/retry", admin_only(self.retry))
        router.add_post("/ui/actions/{id}/undo", admin_only(self.undo))
        app.on_shutdown.append(self._jobs.close)

    async def show_effect(self, request: web.Request) -> web.Response:
        query = request.query
        try:
            action = Action(query.get("action", ""))
        except ValueError:
            raise web.HTTPBadRequest(text=f"action is one of {', '.join(Action)}") from None
        nodes = query.getall("node", None)
        order = Order(action, "", query.get("topic", ""), query.get("channel", ""), nodes)
        check_order(order)
        return await self._effect(request, order)

    async def count_effect(self, request: web.Request) -> web.Response:
        return await self._effect(request, await read_order(request))

    async def _effect(self, request: web.Request, order: Order) -> web.Response:
        if order.is_bulk:
            targets = await self._sets.find(order, user_of(request).role)
            return answer_json(await effect_of_set(order.action, targets, new_id()))
        target = await self._targets.find(order.action, order.item, order.nodes)
        return answer_json(effect_of(order.action, target, new_id()))

    async def begin(self, request: web.Request) -> web.Response:
        """Serve POST /ui/actions: do it, and answer with the result or the job."""
        order = await read_order(request)
        job_id = order.id or new_id()
        begin = self._begin_set if order.is_bulk else self._begin_one
        try:
            job = await self._once(request, job_id, lambda: begin(request, order, job_id))
        except SetChangedError as error:
            await self._note_refused(request, order, CHANGED)
            told = {"message": CHANGED, "effect": error.effect}
            return answer_json(told, web.HTTPConflict.status_code)
        except web.HTTPException as error:
            await self._note_refused(request, order, error.text or error.reason)
            raise
        return await _report(job)

    async def _note_refused(self, request: web.Request, order: Order, reason: str) -> None:
        word = audit_word(order.action, order.item)
        target = {"topic": order.topic, "channel": order.channel}
        effect = {"reason": reason} | ({"view": order.view} if order.is_bulk else {})
        await self._context.audit.note(request, word, target, effect=effect, outcome="refused")

    async def _once(self, request: web.Request, job_id: str, begin: Begin) -> Job:
        return await self._jobs.once(user_of(request).name, job_id, begin)

    async def _begin_one(self, request: web.Request, order: Order, job_id: str) -> Job:
        item, action = order.item, order.action
        if action is Action.CREATE:
            check_name(item.topic, "topic")
            if item.channel:
                check_name(item.channel, "channel")
        if action.wants_name and order.confirm != item.name:
            raise web.HTTPBadRequest(text=f"Not done: confirm has to be {item.name}")
        nodes = order.nodes
        if nodes is None and action is Action.CREATE and not item.channel:
            nodes = []  # as in NSQ's nsqadmin: only nsqlookupd
        target = await self._targets.find(action, item, nodes)
        if order.nodes is None and action is Action.CREATE:
            target.holdings = [holding for holding in target.holdings if holding.is_there]
        if action is Action.DELETE and not order.tell_lookupds:
            target.lookupds = []
        if not target.nodes and not target.lookupds:
            raise web.HTTPBadRequest(text="Not done: choose a node.")
        return self._jobs.start(request, action, [target], job_id)

    async def _begin_set(self, request: web.Request, order: Order, job_id: str) -> Job:
        targets = await self._sets.find(order, user_of(request).role)
        if order.hash != hash_of(order.action, targets):
            raise SetChangedError(await effect_of_set(order.action, targets, new_id()))
        if order.action.wants_name and order.confirm != str(len(targets)):
            raise web.HTTPBadRequest(text=f"Not done: confirm has to be {len(targets)}")
        return self._jobs.start(request, order.action, targets, job_id)

    def _job(self, request: web.Request) -> Job:
        return self._jobs.get(user_of(request).name, request.match_info["id"])

    async def show(self, request: web.Request) -> web.Response:
        return answer_json(self._job(request).to_json())

    async def stop(self, request: web.Request) -> web.Response:
        """Commands under way are still sent."""
        job = self._job(request)
        job.is_stopped = True
        return answer_json(job.to_json())

    async def retry(self, request: web.Request) -> web.Response:
        """Retry only where it failed."""
        job = self._job(request)
        return await self._again(request, job, job.action, job.failed)

    async def undo(self, request: web.Request) -> web.Response:
        """Undo only where it changed something."""
        job = self._job(request)
        if job.action not in OPPOSITE:
            raise web.HTTPBadRequest(text=f"{job.action} cannot be undone")
        return await self._again(request, job, OPPOSITE[job.action], job.changed)

    async def _again(
        self, request: web.Request, job: Job, action: Action, find: Callable[[], list[Target]]
    ) -> web.Response:
        given = await read_json(request, JobOrder)
        if job.is_running:
            raise web.HTTPConflict(text="It is still running.")
        job_id = given.id or new_id()

        async def begin() -> Job:
            targets = find()
            if not targets:
                raise web.HTTPConflict(text="There is nothing left to do.")
            if len(targets) == 1:
                await self._count_again(action, targets[0])
            return self._jobs.start(request, action, targets, job_id)

        return await _report(await self._once(request, job_id, begin))

    async def _count_again(self, action: Action, target: Target) -> None:
        is_whole = action in (Action.DELETE, Action.TOMBSTONE)
        if action is not Action.CREATE:
            target.holdings = await self._targets.ask(target.nodes, target.item, is_whole=is_whole)


async def _report(job: Job) -> web.Response:
    if len(job.targets) != 1:
        return answer_json(job.to_json(), 202)
    await job.ended.wait()
    told = job.to_json()
    return answer_json(told, 502 if told["outcome"] == "failed" else 200)


def add_routes(app: web.Application, context: Context, rows_of: RowsOf) -> None:
    Actions(context, rows_of).add_routes(app)
    app.router.add_post("/ui/publish", admin_only(Publish(context).serve))
    NodeActions(context).add_routes(app.router)
