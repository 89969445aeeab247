"""POST and DELETE below /api: create, delete, pause, unpause, empty, tombstone. Audited; only admins get here."""

from collections.abc import Awaitable

from aiohttp import web

from nsqfast.nsqadmin.api.answers import answer, join_warnings
from nsqfast.nsqadmin.api.bodies import read_strings
from nsqfast.nsqadmin.cluster.answers import NobodyAnsweredError
from nsqfast.nsqadmin.cluster.discovery import Discovery
from nsqfast.nsqadmin.cluster.history import mark_action
from nsqfast.nsqadmin.cluster.steps import ScriptActions
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.results import Result, outcome_of
from nsqfast.wire.names import is_valid_name
from nsqfast.wire.refusals import REFUSED

VERBS = ("pause", "unpause", "empty")

Target = dict[str, str]


class Writes:
    """Handlers. If nobody could be asked, an action is 502; partial failures are a warning."""

    def __init__(self, context: Context, discovery: Discovery) -> None:
        self._context = context
        self._discovery = discovery
        self._steps = ScriptActions(discovery, context.upstream)

    async def create(self, request: web.Request) -> web.Response:
        """A topic, and a channel of it if one is named."""
        given = await read_strings(request, "topic", "channel")
        topic, channel = given["topic"], given["channel"]
        if not is_valid_name(topic):
            raise web.HTTPBadRequest(text="INVALID_TOPIC")
        if channel and not is_valid_name(channel):
            raise web.HTTPBadRequest(text="INVALID_CHANNEL")
        steps = self._steps
        results = await self._do(
            request, "create_topic", {"topic": topic}, steps.create_topic(topic)
        )
        if channel:
            target = {"topic": topic, "channel": channel}
            done = steps.create_channel(topic, channel)
            results += await self._do(request, "create_channel", target, done)
        return self._answer(results)

    async def act(self, request: web.Request) -> web.Response:
        verb = (await read_strings(request, "action"))["action"]
        if verb not in VERBS:
            raise web.HTTPBadRequest(text="INVALID_ACTION")
        target = dict(request.match_info)
        action = f"{verb}_{_kind(target)}"
        steps = self._steps.act(verb, **target)
        if verb != "empty":
            return self._answer(await self._do(request, action, target, steps))
        # Messages thrown away were not consumed: the rate's chart gets a gap.
        self._context.poller.note_emptied(**target)
        try:
            return self._answer(await self._do(request, action, target, steps))
        finally:
            self._context.poller.note_emptied(**target)

    async def delete(self, request: web.Request) -> web.Response:
        target = dict(request.match_info)
        done = self._steps.act("delete", **target)
        return self._answer(await self._do(request, f"delete_{_kind(target)}", target, done))

    async def tombstone(self, request: web.Request) -> web.Response:
        """Hides a node from the consumers of a topic, and deletes the topic there."""
        try:
            topic = (await read_strings(request, "topic"))["topic"]
        except web.HTTPException:
            raise web.HTTPBadRequest(text="INVALID_BODY") from None
        if not is_valid_name(topic):
            raise web.HTTPBadRequest(text="INVALID_TOPIC")
        node = request.match_info["node"]
        if not await self._is_known(node):
            REFUSED["unknown_node"] += 1
            raise web.HTTPNotFound(text="NODE_NOT_FOUND")
        done = self._steps.tombstone(topic, node)
        target = {"topic": topic, "node": node}
        return self._answer(await self._do(request, "tombstone_topic_producer", target, done))

    async def _is_known(self, node: str) -> bool:
        """Nobody may have us send requests to an address of his own. The poller also remembers nodes that have died."""
        return node in self._context.poller.cluster.nodes or await self._discovery.has_node(node)

    async def _do(
        self, request: web.Request, action: str, target: Target, steps: Awaitable[list[Result]]
    ) -> list[Result]:
        note = self._context.audit.note
        try:
            results = await steps
        except NobodyAnsweredError as error:
            results = error.results + error.failures
            await note(request, action, target, results=results, outcome="failed")
            raise
        outcome = outcome_of(results)
        await note(request, action, target, results=results)
        if outcome != "failed":
            mark_action(self._context.history, action.partition("_")[0], **target)
        return results

    def _answer(self, results: list[Result]) -> web.Response:
        self._context.poller.ask_now()
        return answer({"message": join_warnings(results)})


def _kind(target: Target) -> str:
    return "channel" if "channel" in target else "topic"
