"""/policies: those of all nsqd side by side, and their changes on all of them; docs/ADMIN.md has scripts' requests.

Nodes are asked for each page: policies change by hand alone, and few look at them.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.answers import answer_json
from nsqfast.nsqadmin.access.origin import FORM
from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.actions.nodes import REASONS
from nsqfast.nsqadmin.actions.order import check_name, read_body
from nsqfast.nsqadmin.cluster.answers import Count, UpstreamError, decode
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.results import Result, outcome_of
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.request import PageRequest, Query
from nsqfast.nsqadmin.web.site import Site
from nsqfast.nsqadmin.web.texts import State
from nsqfast.nsqadmin.web.view import Page, View

T = TypeVar("T")

NODES_AT_ONCE = 32
ROWS_MAX = 500
TEXT_SIZE_MAX = 200  # characters of what a node says, in one place
CHANGES_SHOWN = 20
CANNOT = "it has no policies: only nsqfast-nsqd does"
Definition = dict[str, int | float | str]


class GivenPolicy(msgspec.Struct):
    """A policy of one nsqd."""

    name: str
    topic: str = ""
    channel: str | None = None
    priority: Count = 0
    definition: Definition = msgspec.field(default_factory=dict)


class NodePolicies(msgspec.Struct):
    """GET /policies of one nsqd."""

    policies: list[GivenPolicy] = msgspec.field(default_factory=list)
    read_only: bool = False


class QueueChange(msgspec.Struct):
    """A queue for which something else holds; what that is is not read."""

    topic: str
    channel: str = ""
    beyond: Count = 0  # so many messages wait there above the limit


class NodeChanges(msgspec.Struct):
    """The answer of one nsqd to a change, or to a trial."""

    changed: Count = 0
    dropping: Count = 0  # so many of these queues drop their oldest messages from now on
    changes: list[QueueChange] = msgspec.field(default_factory=list)  # the first ones


class PolicyOrder(msgspec.Struct):
    """The body. `definition` is an object, or its JSON; `confirm` the name, if messages may be dropped."""

    name: str
    do: Literal["try", "put", "try_delete", "delete"]
    topic: str = ""
    channel: str = ""  # '' = the topic's own queue, and all of its channels
    priority: int = 0
    definition: str | Definition = ""
    confirm: str = ""

    @property
    def is_trial(self) -> bool:
        return self.do.startswith("try")

    @property
    def is_put(self) -> bool:
        return self.do in ("try", "put")

    def body(self) -> bytes:
        """What nsqd is told; 400 for a definition that is no JSON."""
        if not self.is_put:
            return b""
        definition: Any = self.definition
        if isinstance(definition, str):
            try:
                definition = json.loads(definition)
            except (ValueError, RecursionError) as error:
                raise web.HTTPBadRequest(text=f"The definition is no JSON: {error}") from None
        channel = {"channel": self.channel} if self.channel else {}
        policy = {"topic": self.topic, **channel, "priority": self.priority}
        return json.dumps({**policy, "definition": definition}).encode()


@dataclass(slots=True)
class Row:
    """One version of a policy, and who has it."""

    policy: GivenPolicy
    nodes: list[str] = field(default_factory=list)
    state: State = field(default_factory=lambda: State("off", ""))

    @property
    def limits(self) -> str:
        shown = ", ".join(f"{key} {value}" for key, value in self.policy.definition.items())
        return shown[:TEXT_SIZE_MAX]


@dataclass(slots=True)
class Told:
    """What a node answered to a change."""

    result: Result
    status: int = 200  # of its answer; 0 = there was none
    changes: NodeChanges = field(default_factory=NodeChanges)

    def to_json(self) -> dict[str, Any]:
        told = msgspec.to_builtins(self.result)
        told |= {"changed": self.changes.changed, "dropping": self.changes.dropping}
        shown = self.changes.changes[:CHANGES_SHOWN]
        queues = [
            {"topic": one.topic, "channel": one.channel, "beyond": one.beyond} for one in shown
        ]
        return {**told, "queues": queues}


async def _never_built(_request: PageRequest) -> View:
    raise AssertionError("made for each request, because nodes are asked for it")


PAGE = Page(
    "policies",
    "/policies",
    _never_built,
    "policies.html",
    "policies",
    is_live=False,
    is_for_admins=True,
)


class PolicyPages:
    """The page, its form, and the same as JSON."""

    def __init__(self, context: Context, site: Site) -> None:
        self._context = context
        self._site = site

    async def show(self, request: web.Request) -> web.Response:
        """All of them; ?edit=NAME fills the form with one."""
        known = await self._ask_all()
        edited = Query(request.query.items()).get("edit")
        rows = rows_of(known)
        policy = next((row.policy for row in rows if row.policy.name == edited), None)
        order = PolicyOrder("", "try", definition='{"max_messages": 100000}')
        if policy is not None:
            definition = json.dumps(policy.definition)
            channel = policy.channel or ""
            order = PolicyOrder(
                policy.name, "try", policy.topic, channel, policy.priority, definition
            )
        return await self._respond(request, known, order)

    async def answer(self, _request: web.Request) -> web.Response:
        """Serve GET /ui/policies: what each node has, or why not."""
        known = await self._ask_all()
        nodes = {
            node: found if isinstance(found, NodePolicies) else {"error": found}
            for node, found in known.items()
        }
        return answer_json({"nodes": nodes})

    async def change(self, request: web.Request) -> web.Response:
        """Serve POST /ui/policies, JSON or the page's form: 409 if it may drop messages and nobody confirmed that."""
        order = await read_body(request, PolicyOrder)
        check_name(order.name, "policy")
        body = order.body()
        if not order.is_trial and order.confirm != order.name:
            tried = await self._tell_all(order, body, is_trial=True)
            if dropping := sum(told.changes.dropping for told in tried):
                queues = texts.count_with_noun(dropping, "queue")
                text = f"The oldest messages of {queues} may go at once: type its name to confirm."
                return await self._answer_change(request, order, tried, text, 409)
        told = await self._tell_all(order, body, is_trial=order.is_trial)
        if not order.is_trial:
            await self._note(request, order, told)
        failed = [one for one in told if not (one.result.ok or one.result.text == CANNOT)]
        text = f"{failed[0].result.node}: {failed[0].result.text}" if failed else ""
        # What all refuse alike is the sender's to change.
        is_bad = not any(one.result.ok for one in told) and {one.status for one in failed} == {400}
        status = 400 if is_bad else 502 if failed else 200
        return await self._answer_change(request, order, told, text, status)

    async def _note(self, request: web.Request, order: PolicyOrder, told: Sequence[Told]) -> None:
        results = [one.result for one in told]
        await self._context.audit.note(
            request,
            "put_policy" if order.is_put else "delete_policy",
            {"policy": order.name},
            effect={"queues": sum(one.changes.changed for one in told)},
            results=results,
            outcome=outcome_of(results),
        )
        self._context.poller.ask_now()

    async def _answer_change(
        self,
        request: web.Request,
        order: PolicyOrder,
        told: Sequence[Told],
        text: str,
        status: int,
    ) -> web.Response:
        if request.content_type == FORM:
            known = await self._ask_all()
            return await self._respond(request, known, order, told, text, status)
        message = {"message": text} if text else {}
        answer = {**message, "results": [one.to_json() for one in told]}
        return web.json_response(answer, status=status)

    async def _respond(
        self,
        request: web.Request,
        known: Mapping[str, NodePolicies | str],
        order: PolicyOrder,
        told: Sequence[Told] = (),
        text: str = "",
        status: int = 200,
    ) -> web.Response:
        definition = order.definition
        facts = {
            "rows": rows_of(known)[:ROWS_MAX],
            "troubles": troubles_of(known),
            "order": order,
            "definition": definition if isinstance(definition, str) else json.dumps(definition),
            "told": told,
            "text": text,
        }
        values = {"page": PAGE, "query": Query(()), "at": self._context.poller.cluster.at}
        view = View("Policies", facts=facts)
        return await self._site.respond(request, PAGE.template, view, values, status)

    async def _ask_all(self) -> dict[str, NodePolicies | str]:
        """What each node has, or why nobody knows."""

        async def ask(node: str) -> NodePolicies | str:
            try:
                return await self._context.upstream.read(node, "/policies", NodePolicies)
            except UpstreamError as error:
                return reason_of(error)

        return await self._each(ask)

    async def _tell_all(self, order: PolicyOrder, body: bytes, *, is_trial: bool) -> list[Told]:
        path = f"/policies/{order.name}{'?dry_run=true' if is_trial else ''}"
        method = "PUT" if order.is_put else "DELETE"

        async def tell(node: str) -> Told:
            try:
                answer = await self._context.upstream.command(method, node, path, body)
                return Told(Result(node, ok=True), changes=decode(bytes(answer), NodeChanges))
            except UpstreamError as error:
                # One that does not have it has nothing to remove.
                is_done = not order.is_put and "POLICY_NOT_FOUND" in error.message
                return Told(Result(node, ok=is_done, text=reason_of(error)), error.status)

        return list((await self._each(tell)).values())

    async def _each(self, do: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """Of all nodes of the cluster, by their keys."""
        slots = asyncio.Semaphore(NODES_AT_ONCE)

        async def one(node: str) -> T:
            async with slots:
                return await do(node)

        nodes = list(self._context.poller.cluster.nodes)
        return dict(zip(nodes, await asyncio.gather(*map(one, nodes)), strict=True))


def rows_of(known: Mapping[str, NodePolicies | str]) -> list[Row]:
    """By name; the versions of one, and who has which, one below the other."""
    rows: dict[tuple[str, bytes], Row] = {}
    able = [node for node, found in known.items() if isinstance(found, NodePolicies)]
    for node, found in known.items():
        for policy in found.policies if isinstance(found, NodePolicies) else ():
            key = policy.name, msgspec.json.encode(policy)
            rows.setdefault(key, Row(policy)).nodes.append(node)
    versions: dict[str, int] = {}
    for name, _ in rows:
        versions[name] = versions.get(name, 0) + 1
    for row in rows.values():
        row.state = state_of(row, versions[row.policy.name], len(able))
    return [rows[key] for key in sorted(rows)]


def state_of(row: Row, version_count: int, able_count: int) -> State:
    """Whether all nodes that can have it do."""
    where = ", ".join(row.nodes)[:TEXT_SIZE_MAX]
    if version_count > 1:
        return State("crit", f"differs: {len(row.nodes)} of {able_count} nodes", where)
    if len(row.nodes) < able_count:
        return State("warn", f"on {len(row.nodes)} of {able_count} nodes", where)
    return State("ok", "on all nodes", where)


def troubles_of(known: Mapping[str, NodePolicies | str]) -> list[str]:
    """Which nodes have none that could be changed here, in a line each for the first ones."""
    lines = [
        f"{node}: {found}"
        if isinstance(found, str)
        else f"{node}: they are those of its --policy-file"
        for node, found in known.items()
        if isinstance(found, str) or found.read_only
    ]
    more = len(lines) - CHANGES_SHOWN
    return lines[:CHANGES_SHOWN] + ([f"{more:,} more"] if more > 0 else [])


def reason_of(error: UpstreamError) -> str:
    """nsqd's reason, for a person."""
    if error.status == 404 and "POLICY_NOT_FOUND" not in error.message:
        return CANNOT
    _, _, quoted = error.message.partition(' "')
    try:
        said = json.loads(json.loads(f'"{quoted}'))
        reason = said.get("reason") or REASONS.get(said["message"], said["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        reason = error.message
    return str(reason)[:TEXT_SIZE_MAX]


def add_routes(app: web.Application, context: Context, site: Site) -> None:
    """For admins: a policy may drop messages."""
    pages = PolicyPages(context, site)
    app.router.add_get(PAGE.route, admin_only(pages.show))
    app.router.add_get("/ui/policies", admin_only(pages.answer))
    app.router.add_post("/ui/policies", admin_only(pages.change))
