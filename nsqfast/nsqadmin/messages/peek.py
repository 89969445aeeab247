"""A peek at the waiting messages of a topic or channel: every node is asked once, and nothing changes there.

nsqd answers /channel/peek and /topic/peek as docs/PEEK.md says.
"""

import asyncio
import base64
import binascii
import datetime as dt
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar
from urllib.parse import urlencode

import msgspec

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.answers import Count, UpstreamError
from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.cluster.model import Node, NodeState
from nsqfast.nsqadmin.messages.bodies import NOT_ALLOWED, Body, Masks, show_body
from nsqfast.nsqadmin.web.request import Query

T = TypeVar("T")

STATES = ("ready", "in_flight", "deferred")
CANNOT_SHOW = {
    "ready": "waiting messages; tail new ones instead",
    "in_flight": "messages in flight",
    "deferred": "deferred messages",
}
VIEWS = ("json", "text", "hex")
# nsqd's limits.
LIMIT_DEFAULT, LIMIT_MAX = 20, 100
OFFSET_MAX = 10_000
FILTER_SIZE_MAX = 1024
PIECE_SIZE_MAX = 65536
NODES_AT_ONCE = 32
# Time for a node that did not answer the last poll: the page of the others must not wait for it.
LATE_ANSWER_S = 0.2
# A page holds the bodies of all nodes: with many nodes and messages, each piece is shorter.
PAGE_SIZE_MAX = 8 << 20
PIECE_SIZE_MIN = 1024
HEX_FACTOR = 5
SEARCHED_SIZE_MAX = 16384  # in the loop, without a thread
# Of what a consumer, or a node, says of a dead letter: characters.
NAME_SIZE_MAX, ERROR_SIZE_MAX, LINE_SIZE_MAX = 64, 512, 200
HIDDEN = "(hidden)"
PLACE = re.compile(r"[0-9a-f-]{1,200}")


class PeekedClient(msgspec.Struct):
    client_id: str = ""
    hostname: str = ""
    remote_address: str = ""


Time = Annotated[float, msgspec.Meta(ge=0, le=2**63)]


class Death(msgspec.Struct):
    """Where and why a dead letter died. Times are in ns since 1970 from nsqd, and in seconds on a page."""

    reason: str = ""
    topic: str = ""
    channel: str = ""
    failures: Count = 0
    attempts: Count = 0
    client: str = ""
    error: str = ""
    first_id: str = ""
    published: Time = 0.0
    died: Time = 0.0

    @property
    def line(self) -> str:
        """The first one of the error."""
        return self.error.partition("\n")[0][:LINE_SIZE_MAX]


class PeekedMessage(msgspec.Struct):
    """Times in ns since 1970; `encoding` is "text" or "base64"."""

    id: str
    timestamp: int = 0
    age_ms: int = 0
    attempts: int = 0
    failures: Count = 0  # this one and the next only from ours
    death: Death | None = None
    size: int = 0
    where: str = ""
    due: int | None = None
    due_in_ms: int | None = None
    client: PeekedClient | None = None
    body: str = ""
    encoding: str = "text"
    is_truncated: bool = False

    @property
    def piece(self) -> bytes:
        """The beginning of the body, or all of it; UpstreamError if it is malformed."""
        if self.encoding != "base64":
            return self.body.encode()
        try:
            return base64.b64decode(self.body, validate=True)
        except binascii.Error as error:
            raise UpstreamError(f"the body of message {self.id[:32]}: {error}") from None


class Peeked(msgspec.Struct):
    """`scanned` messages from `offset` on were examined; `next_offset` is None if no more can be seen."""

    taken_at: int = 0
    depth: int = 0
    offset: int = 0
    scanned: int = 0
    is_complete: bool = True
    next_offset: int | None = None
    next: str | None = None
    note: str | None = None
    messages: list[PeekedMessage] = []


@dataclass(frozen=True, slots=True)
class PeekQuery:
    """The parameters. Without a channel it is the topic's own queue; `node` '' means all nodes.

    With a `place`, where nsqd said to go on, `offset` only says how many came before it.
    """

    topic: str
    channel: str
    state: str = "ready"
    view: str = "json"
    limit: int = LIMIT_DEFAULT
    offset: int = 0
    filter: str = ""
    node: str = ""
    place: str = ""
    since_ns: int = 0  # Unix time; 0: ever
    search: str = ""  # as nsqfast.wire.search has it

    @property
    def is_search(self) -> bool:
        return bool(self.filter or self.since_ns or self.search)

    def target(self, piece_max: int) -> str:
        given: dict[str, str | int] = {"topic": self.topic, "channel": self.channel}
        given |= {"state": self.state, "limit": self.limit}
        given |= {"from": self.place} if self.place else {"offset": self.offset}
        given |= {"max_body": piece_max, "filter": self.filter, "since": self.since_ns or ""}
        given["search"] = self.search
        path = "/channel/peek" if self.channel else "/topic/peek"
        return f"{path}?" + urlencode({name: value for name, value in given.items() if value != ""})

    def piece_max(self, node_count: int) -> int:
        """How many bytes of each body nsqd is asked for, so that the whole page has a bound."""
        shown = max(node_count, 1) * self.limit * (HEX_FACTOR if self.view == "hex" else 1)
        return min(PIECE_SIZE_MAX, max(PIECE_SIZE_MIN, PAGE_SIZE_MAX // shown))


class Message(msgspec.Struct):
    """As a page shows it; `time` and `due` are in seconds since 1970."""

    id: str
    time: float
    age_ms: int
    attempts: int
    failures: int
    death: Death | None
    size: int
    where: str
    due: float | None
    due_in_ms: int | None
    client: PeekedClient | None
    body: Body


class NodeMessages(msgspec.Struct):
    """The messages of one node. With a `sentence` there are none: it cannot show them, or did not answer."""

    node: str
    hostname: str
    version: str
    sentence: str = ""
    is_failed: bool = False  # being unable to show messages is not a failure
    taken_at: float = 0.0
    depth: int = 0
    offset: int = 0
    scanned: int = 0
    is_complete: bool = True
    next_offset: int | None = None
    next: str | None = None
    note: str = ""
    messages: list[Message] = []


@dataclass(slots=True, eq=False)
class Peek:
    """A look at messages on behalf of one user: what was asked, and what each node answered."""

    asked: PeekQuery
    masks: Masks
    is_admin: bool
    may_see: bool  # bodies
    may_filter: bool
    nodes: Sequence[Node] = ()  # that were asked
    answers: list[NodeMessages] = field(default_factory=list)

    async def ask(self, upstream: Upstream, nodes: Sequence[Node]) -> None:
        """The answers are in the order of `nodes`."""
        asked, self.nodes = self.asked, nodes
        slots = asyncio.Semaphore(NODES_AT_ONCE)
        target = asked.target(asked.piece_max(len(nodes)) if self.may_see else 0)

        async def ask(node: Node) -> NodeMessages:
            answer = NodeMessages(node.key, node.hostname, node.version)
            async with slots:
                try:
                    await self._fill(answer, await read_node(upstream, node, target, Peeked))
                except UpstreamError as error:
                    answer.sentence, answer.is_failed = explain_failure(node, asked, error)
            return answer

        self.answers = list(await asyncio.gather(*map(ask, nodes)))

    async def _fill(self, answer: NodeMessages, found: Peeked) -> None:
        slices = Slices()
        messages = []
        for each in found.messages[: self.asked.limit]:
            body = Body("hidden", reason=NOT_ALLOWED)
            if self.may_see:
                piece = each.piece[:PIECE_SIZE_MAX]
                is_whole = not each.is_truncated and len(piece) == each.size
                body = await self._show(piece, is_whole=is_whole)
            messages.append(make_message(each, body, self._show_death(each.death)))
            await slices.pause()
        answer.messages = messages
        answer.taken_at = found.taken_at / 1e9
        answer.depth, answer.offset, answer.scanned = found.depth, self.asked.offset, found.scanned
        answer.is_complete, answer.next = found.is_complete, found.next
        answer.next_offset = found.next_offset
        if found.next is not None:
            answer.next_offset = self.asked.offset + found.scanned
        answer.note = found.note or ""

    def _show_death(self, death: Death | None) -> Death | None:
        """What a consumer says of an error may be a part of the body, so it is hidden like that."""
        if death is None:
            return None
        error = HIDDEN
        if self.may_see:
            masked = self.masks.hide(death.error.encode(), is_whole=True, is_admin=self.is_admin)
            error = HIDDEN if masked.reason else printable(masked.body.decode("utf-8", "replace"))
        return Death(
            reason=death.reason[:NAME_SIZE_MAX],
            topic=death.topic,
            channel=death.channel,
            failures=death.failures,
            attempts=death.attempts,
            client=death.client[:NAME_SIZE_MAX],
            error=error[:ERROR_SIZE_MAX] if death.error else "",
            first_id=death.first_id[:NAME_SIZE_MAX],
            published=death.published / 1e9,
            died=death.died / 1e9,
        )

    async def _show(self, piece: bytes, *, is_whole: bool) -> Body:
        show = functools.partial(
            show_body, piece, is_whole=is_whole, masks=self.masks, is_admin=self.is_admin
        )
        # Searching 64 KiB of JSON for hidden keys takes 10 ms in bad cases.
        is_long = bool(self.masks) and len(piece) > SEARCHED_SIZE_MAX
        return await asyncio.to_thread(show) if is_long else show()


async def read_node(upstream: Upstream, node: Node, target: str, kind: type[T]) -> T:
    """What it answers; UpstreamError. The page of the others does not wait for one that is down, or late."""
    if node.state is NodeState.DOWN:
        raise UpstreamError(node.error or "it is down")
    try:
        async with asyncio.timeout(LATE_ANSWER_S if node.state is NodeState.STALE else None):
            return await upstream.read(node.key, target, kind)
    except TimeoutError:
        raise UpstreamError("no answer in time") from None


def printable(text: str) -> str:
    """Without characters that HTML cannot have, or that change how others are shown; lines stay lines."""
    return "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in text)


def make_message(given: PeekedMessage, body: Body, death: Death | None) -> Message:
    return Message(
        id=given.id,
        time=given.timestamp / 1e9,
        age_ms=given.age_ms,
        attempts=given.attempts,
        failures=given.failures,
        death=death,
        size=given.size,
        where=given.where,
        due=None if given.due is None else given.due / 1e9,
        due_in_ms=given.due_in_ms,
        client=given.client,
        body=body,
    )


def explain_failure(node: Node, asked: PeekQuery, error: UpstreamError) -> tuple[str, bool]:
    """Why there is nothing to see, and whether that is a failure."""
    if "INVALID_ARG_FROM" in error.message:
        return f"{node.key} was started anew since then: look from the beginning.", True
    if error.status != 404:
        return f"{node.key} did not answer: {error.message}", True
    if "CHANNEL_NOT_FOUND" in error.message or "TOPIC_NOT_FOUND" in error.message:
        return f"{node.key} does not have it any more.", False
    host, version = node.hostname or node.key, node.version or "of unknown version"
    return f"nsqd {version} on {host} cannot show {CANNOT_SHOW[asked.state]}.", False


def read_peek_query(query: Query, topic: str, channel: str, state: str = "") -> PeekQuery:
    """Parse an address; invalid values count as missing, and too large ones are reduced to nsqd's limits."""
    states = STATES if channel else STATES[:1]
    text = query.get("filter")
    while len(text.encode("utf-8", "replace")) > FILTER_SIZE_MAX:
        text = text[:-1]
    place = query.get("from") if PLACE.fullmatch(query.get("from")) else ""
    return PeekQuery(
        topic,
        channel,
        state=state or query.choice("state", states),
        view=query.choice("view", VIEWS),
        limit=query.number("limit", LIMIT_DEFAULT, 1, LIMIT_MAX),
        offset=query.number("offset", 0, 0, 10**9 if place else OFFSET_MAX),
        filter=text,
        node=query.get("node"),
        place=place,
        since_ns=read_since(query.get("since")),
    )


def read_since(text: str) -> int:
    """Unix time in ns of a time in ISO 8601, without a zone in the server's; 0 if it is none that nsqd can compare."""
    try:
        since_ns = int(dt.datetime.fromisoformat(text).timestamp()) * 10**9
    except (ValueError, OverflowError, OSError):
        return 0
    return since_ns if 0 < since_ns < 2**63 else 0


def write_since(since_ns: int, zone: dt.tzinfo | None = None) -> str:
    """The same the other way round; '' for 0."""
    return dt.datetime.fromtimestamp(since_ns // 10**9, zone).isoformat() if since_ns else ""
