"""Dead letters go back to their channel on all nodes that have some, or for ever, or no more of them do: nsqd does it
itself.
"""

import asyncio
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec

from nsqfast.nsqadmin.actions.nodes import explain_refusal
from nsqfast.nsqadmin.cluster.answers import UpstreamError
from nsqfast.nsqadmin.cluster.model import Node
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.messages.dead_letters import REASONS, DeadLetters, NodeLetters
from nsqfast.nsqadmin.messages.peek import NODES_AT_ONCE
from nsqfast.nsqadmin.results import Result
from nsqfast.wire.search import parse_search

RATE_MAX, LIMIT_MAX = 10_000_000, 10**15 - 1  # of nsqd
CONSEQUENCES = {"start": "Its consumers get them again", "delete": "Nothing brings them back"}


class RedriveOrder(msgspec.Struct):
    """The body. Those that the search and the reason choose go; rate (messages a second; 0: as fast as possible) and
    limit (0: all) are those of each node; `source` is the channel in which the dead letters wait, where there are
    several; `confirm` the channel's name.
    """

    topic: str
    channel: str
    do: Literal["start", "delete", "cancel"]
    source: str = ""
    search: str = ""
    reason: str = ""
    rate: Annotated[float, msgspec.Meta(ge=0, le=RATE_MAX)] = 0.0
    limit: Annotated[int, msgspec.Meta(ge=0, le=LIMIT_MAX)] = 0
    confirm: str = ""

    def path(self, letters: NodeLetters) -> str:
        """What this node is told."""
        given = {"topic": self.topic, "channel": self.channel}
        if self.do == "cancel":
            return f"/channel/redrive/cancel?{urlencode(given)}"
        given |= {"rate": f"{self.rate:f}", "limit": str(self.limit), "search": self.search}
        given |= {"reason": self.reason, "delete": "true" if self.do == "delete" else ""}
        if self.source in letters.queues:
            given["from"] = self.source
        return (
            f"/channel/redrive?{urlencode({key: value for key, value in given.items() if value})}"
        )

    def concerns(self, letters: NodeLetters) -> bool:
        """Whether there is something to do for this node."""
        if self.do == "cancel":
            return letters.is_running
        queues = letters.queues
        return bool(queues[self.source] if self.source in queues else any(queues.values()))


def check_search(text: str) -> str:
    """Why it is none, or ''."""
    try:
        parse_search(text)
    except ValueError as error:
        return f"That is no search: {error}."
    return ""


def check(order: RedriveOrder) -> tuple[str, int]:
    """Why it is not done without more, or '', and the status then."""
    if text := check_search(order.search):
        return text, 400
    if order.reason not in ("", *REASONS):
        return f"A reason is one of {', '.join(REASONS)}.", 400
    if order.do == "delete" and order.limit:
        return "A delete has no limit: it deletes all that match.", 400
    if order.do != "cancel" and order.confirm != order.channel:
        return f"{CONSEQUENCES[order.do]}: type {order.channel} to confirm.", 409
    return "", 409


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
