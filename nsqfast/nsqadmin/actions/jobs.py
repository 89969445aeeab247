"""Running and finished actions on one item or hundreds, with their progress and the result of each node.

A job continues when its page is closed. It is kept for KEPT_S, so that failures can be retried, a pause can be undone,
and a second click finds the first one's job instead of doing everything twice.
"""

import asyncio
import collections
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.actions.effect import audited_effect, object_of
from nsqfast.nsqadmin.actions.order import OPPOSITE, Action, audit_word
from nsqfast.nsqadmin.actions.targets import Target
from nsqfast.nsqadmin.cluster.client import UpstreamError, cause_of
from nsqfast.nsqadmin.cluster.history import PAST, mark_action
from nsqfast.nsqadmin.cluster.steps import Step, StepRunner, steps_of
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.results import Outcome, Result, outcome_of

ITEMS_AT_ONCE: Final = 8
NODES_AT_ONCE: Final = 16
KEPT_S: Final = 900.0
KEPT_MAX: Final = 200
STOP_S: Final = 2.0


@dataclass(slots=True)
class DoneItem:
    target: Target
    results: list[Result]
    outcome: Outcome


@dataclass(slots=True, eq=False)
class Job:
    """`done` grows up to one entry per target."""

    id: str
    action: Action
    targets: Sequence[Target]
    done: list[DoneItem] = field(default_factory=list)
    outcomes: set[Outcome] = field(default_factory=set)  # seen so far
    is_stopped: bool = False  # what has begun is finished, and nothing more is begun
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_running(self) -> bool:
        return not self.ended.is_set()

    @property
    def outcome(self) -> Outcome:
        if self.outcomes <= {"ok"}:
            return "ok"
        return "failed" if self.outcomes == {"failed"} else "partial"

    def add(self, target: Target, results: list[Result]) -> DoneItem:
        done = DoneItem(target, results, outcome_of(results))
        self.done.append(done)
        self.outcomes.add(done.outcome)
        return done

    def failed(self) -> list[Target]:
        """The failures, which can be retried."""
        return [left for done in self.done if (left := target_left(self.action, done)) is not None]

    def changed(self) -> list[Target]:
        """Targets whose pause state this job changed, which an undo has to revert."""
        changed: list[Target] = []
        was = self.action is Action.UNPAUSE
        for done in self.done if self.action in OPPOSITE else ():
            told = {result.node for result in done.results if result.ok}
            holdings = [h for h in done.target.holdings if h.node in told and h.paused is was]
            if holdings:
                changed.append(replace(done.target, holdings=holdings))
        return changed

    def to_json(self) -> dict[str, Any]:
        """The JSON for the page. For many items only failures are listed by node."""
        is_one = len(self.targets) == 1
        is_running = self.is_running
        return {
            "id": self.id,
            "action": self.action,
            "title": self._title(),
            "total": len(self.targets),
            "done": len(self.done),
            "is_running": is_running,
            "is_stopped": self.is_stopped,
            "outcome": self.outcome,
            "can_retry": not is_running and self.outcome != "ok",
            "can_undo": not is_running and bool(self.changed()),
            "items": []
            if is_running
            else [_done_json(done, is_whole=is_one) for done in self.done],
        }

    def _title(self) -> str:
        verb = self.action.capitalize() if self.is_running else PAST[self.action]
        target = self.targets[0]
        if len(self.targets) != 1:
            count = len(self.targets if self.is_running else self.done)
            return f"{verb} {count:,} {target.item.kind}{'' if count == 1 else 's'}"
        node = target.nodes[0] if self.action is Action.TOMBSTONE else ""
        return f"{verb} {object_of(self.action, target.item, node)}"


def _done_json(done: DoneItem, *, is_whole: bool) -> dict[str, Any]:
    lookupds = set(done.target.lookupds)
    return {
        "topic": done.target.item.topic,
        "channel": done.target.item.channel,
        "outcome": done.outcome,
        "ok": sum(result.ok for result in done.results),
        "results": [
            msgspec.structs.asdict(result)
            | {"kind": "nsqlookupd" if result.node in lookupds else "nsqd"}
            for result in done.results
            if is_whole or not result.ok
        ],
    }


def target_left(action: Action, done: DoneItem) -> Target | None:
    """The minimum needed to retry the failures; None if nothing failed."""
    failed = {result.node for result in done.results if not result.ok}
    if not failed:
        return None
    target = done.target
    if action is Action.TOMBSTONE:
        return target
    # An nsqd that comes back registers again with nsqlookupd, which therefore has to forget the topic again.
    is_anew = action is Action.DELETE
    return replace(
        target,
        holdings=[holding for holding in target.holdings if holding.node in failed],
        lookupds=[one for one in target.lookupds if is_anew or one in failed],
    )


class Jobs:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs: collections.OrderedDict[tuple[str, str], tuple[float, asyncio.Task[Job]]] = (
            collections.OrderedDict()
        )
        self._running: set[asyncio.Task[None]] = set()

    async def once(self, user: str, job_id: str, begin: Callable[[], Awaitable[Job]]) -> Job:
        """The job with this id, begun if there is none. If `begin` raises, there is none."""
        self._forget()
        key = user, job_id
        known = self._jobs.get(key)
        if known is None:
            task = asyncio.ensure_future(begin())
            known = self._jobs[key] = time.monotonic(), task
        try:
            return await asyncio.shield(known[1])
        except Exception:
            self._jobs.pop(key, None)
            raise

    def get(self, user: str, job_id: str) -> Job:
        """404 if it is no longer known; nobody sees another user's."""
        self._forget()
        known = self._jobs.get((user, job_id))
        if known is None or not known[1].done() or known[1].exception() is not None:
            raise web.HTTPNotFound(text="That was too long ago: open the dialog again.")
        return known[1].result()

    def _forget(self) -> None:
        before = time.monotonic() - KEPT_S
        while self._jobs:
            key, (begun, task) = next(iter(self._jobs.items()))
            is_over = task.done() and (task.exception() or not task.result().is_running)
            if not is_over or (begun > before and len(self._jobs) <= KEPT_MAX):
                return
            del self._jobs[key]

    def start(
        self, request: web.Request, action: Action, targets: Sequence[Target], job_id: str
    ) -> Job:
        """Begin, and return at once."""
        job = Job(job_id or new_id(), action, targets)
        task = asyncio.get_running_loop().create_task(self._run(request, job))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return job

    async def close(self, _app: web.Application) -> None:
        """nsqadmin stops: finish commands under way, for STOP_S at most."""
        await end_tasks(self._running)

    async def _run(self, request: web.Request, job: Job) -> None:
        runner = StepRunner(self._context.upstream, NODES_AT_ONCE, _judge)
        rest = iter(job.targets)
        try:
            workers = min(ITEMS_AT_ONCE, len(job.targets))
            await asyncio.gather(*(self._work(request, job, runner, rest) for _ in range(workers)))
        finally:
            job.ended.set()
            self._context.poller.ask_now()

    async def _work(
        self, request: web.Request, job: Job, runner: StepRunner, rest: Iterable[Target]
    ) -> None:
        for target in rest:
            if job.is_stopped:
                return
            results = await self._do(job.action, target, runner)
            await self._tell_others(request, job, job.add(target, results))

    async def _do(self, action: Action, target: Target, runner: StepRunner) -> list[Result]:
        steps = steps_for(action, target)
        if action is not Action.EMPTY:
            return await runner.run(steps)
        # Messages removed by emptying were not consumed: charts must not count them.
        self._note_emptied(target)
        results = await runner.run(steps)
        self._note_emptied(target)
        return results

    def _note_emptied(self, target: Target) -> None:
        for node in target.nodes:
            self._context.poller.note_emptied(target.item.topic, target.item.channel, node)

    async def _tell_others(self, request: web.Request, job: Job, done: DoneItem) -> None:
        target = done.target
        item = target.item
        named = {"topic": item.topic, "channel": item.channel}
        if job.action is Action.TOMBSTONE:
            named["node"] = target.nodes[0]
        effect = audited_effect(job.action, target, done.results)
        if len(job.targets) > 1:
            effect["one_of"] = len(job.targets)
        await self._context.audit.note(
            request,
            audit_word(job.action, item),
            named,
            effect=effect,
            results=done.results,
            outcome=done.outcome,
        )
        if done.outcome != "failed":
            mark_action(self._context.history, job.action, **named)


async def end_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Wait for them, for STOP_S at most."""
    if not tasks:
        return
    _, pending = await asyncio.wait(tasks, timeout=STOP_S)
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)


def steps_for(action: Action, target: Target) -> list[Step]:
    """A channel is created together with its topic."""
    item = target.item
    names = [(item.topic, "")] if action is Action.CREATE and item.channel else []
    names.append((item.topic, item.channel))
    return [
        step
        for topic, channel in names
        for step in steps_of(action, topic, channel, lookupds=target.lookupds, nodes=target.nodes)
    ]


def _judge(address: str, step: Step, error: UpstreamError) -> Result:
    if error.status == 404 and step.may_lack:
        return Result(address, ok=True, text="was not there")
    return Result(address, ok=False, text=cause_of(error, f"http://{address}{step.target}"))


def new_id() -> str:
    """An id that nobody can guess."""
    return secrets.token_urlsafe(16)
