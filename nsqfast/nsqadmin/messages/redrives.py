"""Dead letters go back to their channel on all nodes that have some, or no more of them do: nsqd moves them itself."""

import asyncio
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.actions.nodes import explain_refusal
from nsqfast.nsqadmin.cluster.answers import UpstreamError
from nsqfast.nsqadmin.cluster.model import Node
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.messages.dead_letters import DeadLetters, NodeLetters
from nsqfast.nsqadmin.messages.peek import FILTER_SIZE_MAX, NODES_AT_ONCE
from nsqfast.nsqadmin.results import Result

RATE_MAX, LIMIT_MAX = 10_000_000, 10**15 - 1  # of nsqd


class RedriveOrder(msgspec.Struct):
    """The body. Rate (messages a second; 0: as fast as possible) and limit (0: all) are those of each node; `source` is
    the channel in which the dead letters wait, where there are several; `confirm` the channel's name.
    """

    topic: str
    channel: str
    do: Literal["start", "cancel"]
    source: str = ""
    filter: str = ""
    rate: Annotated[float, msgspec.Meta(ge=0, le=RATE_MAX)] = 0.0
    limit: Annotated[int, msgspec.Meta(ge=0, le=LIMIT_MAX)] = 0
    confirm: str = ""

    @property
    def is_start(self) -> bool:
        return self.do == "start"

    def path(self, letters: NodeLetters) -> str:
        """What this node is told."""
        given = {"topic": self.topic, "channel": self.channel}
        if not self.is_start:
            return f"/channel/redrive/cancel?{urlencode(given)}"
        given |= {"rate": f"{self.rate:f}", "limit": str(self.limit), "filter": self.filter}
        if self.source in letters.queues:
            given["from"] = self.source
        return (
            f"/channel/redrive?{urlencode({key: value for key, value in given.items() if value})}"
        )

    def concerns(self, letters: NodeLetters) -> bool:
        """Whether there is something to do for this node."""
        if not self.is_start:
            return letters.is_running
        queues = letters.queues
        return bool(queues[self.source] if self.source in queues else any(queues.values()))


def check(order: RedriveOrder) -> str:
    """Why it is not done without more; 400 for what cannot be meant."""
    if len(order.filter.encode("utf-8", "replace")) > FILTER_SIZE_MAX:
        raise web.HTTPBadRequest(text=f"A search has at most {FILTER_SIZE_MAX} bytes.")
    if order.is_start and order.confirm != order.channel:
        return f"Its consumers get them again: type {order.channel} to confirm."
    return ""


async def tell_all(
    context: Context, order: RedriveOrder, known: DeadLetters, nodes: dict[str, Node]
) -> list[Result]:
    """The result of each node that has something to do, or did not say; none if there is no such node."""
    slots = asyncio.Semaphore(NODES_AT_ONCE)

    async def tell(letters: NodeLetters) -> Result:
        if letters.is_failed:
            return Result(letters.node, ok=False, text=letters.sentence)
        async with slots:
            try:
                await context.upstream.post(letters.node, order.path(letters))
            except UpstreamError as error:
                text = explain_refusal(nodes[letters.node], error)
                return Result(letters.node, ok=False, text=text)
        return Result(letters.node, ok=True)

    wanted = [letters for letters in known.nodes if letters.is_failed or order.concerns(letters)]
    return list(await asyncio.gather(*map(tell, wanted)))
