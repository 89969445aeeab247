"""Requeue, drop, copy or move messages of a channel, by id or by what their bodies contain.

nsqd has none of this. A request examines a part of the queue, between whose slices the loop serves others (see
nsqfast._ext.broker.picker), and says where the next one goes on.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.picker import ACTIONS, IDS_MAX, Picker
from nsqfast._ext.broker.snapshot import STATES
from nsqfast._ext.broker.topic import Topic
from nsqfast.net.http_message import Request, Response
from nsqfast.net.http_reply import (
    HttpError,
    error_answer,
    json_answer,
    parameters,
    required,
    text_answer,
)
from nsqfast.nsqd.http_peek import Peek, queue_name, read_needle, read_since, read_state, read_terms
from nsqfast.nsqd.http_publish import HttpPublisher, not_taken
from nsqfast.nsqd.kept import when_kept
from nsqfast.wire.refusals import NotTakenError

# Of a request that searches ready messages. Others are examined to the end.
PART_S = 1.0
# After which it is looked again whether the commit log has room.
LOG_WAIT_S = 0.002
EMPTY = text_answer("")
EXITING = error_answer(503, "EXITING")
MESSAGE_NOT_FOUND = error_answer(404, "MESSAGE_NOT_FOUND")
# Messages changed since the start, for /metrics.
CHANGED = Counter(dict.fromkeys(ACTIONS, 0))

_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages of a channel, and what becomes of them: those with one of the ids, if any, that a search finds."""

    action: str
    channel: Channel
    state: str
    target: Topic | None
    ids: tuple[bytes, ...]
    needle: bytes
    place: tuple[int, ...] | None
    since_ns: int
    terms: tuple[tuple[bytes, bytes], ...]

    @property
    def names(self) -> dict[str, str]:
        """Of the channel."""
        return {"topic": self.channel.topic_name, "channel": self.channel.name}

    def begin(self) -> Picker:
        """Examine from now on."""
        return Picker(
            self.channel,
            self.state,
            self.action,
            self.target,
            self.ids,
            self.needle,
            self.place,
            self.since_ns,
            self.terms,
        )


class MessageChanges:
    """Handlers of /channel/messages/... and /channel/deferred/..."""

    def __init__(self, peek: Peek, publisher: HttpPublisher) -> None:
        self._peek = peek
        self._publisher = publisher

    def handler(self, action: str) -> Callable[[Request], Awaitable[Response]]:
        """The handler of /channel/messages/ACTION, one of ACTIONS."""

        def change(request: Request) -> Awaitable[Response]:
            values = parameters(request)
            channel = self._peek.channel(values)
            if not values.keys() & {"id", "filter", "search"}:
                raise HttpError(400, "MISSING_ARG_FILTER")
            return self._change(self._read(action, channel, values))

        return change

    def deferred_handler(self, action: str) -> Callable[[Request], Awaitable[Response]]:
        """The same for one deferred message, which has to be there."""

        def change(request: Request) -> Awaitable[Response]:
            values = parameters(request)
            channel = self._peek.channel(values)
            named = {"id": required(values, "id"), "state": "deferred"}
            return self._change_one(self._read(action, channel, named))

        return change

    def _read(self, action: str, channel: Channel, values: dict[str, str]) -> Choice:
        names = {"topic": channel.topic_name, "channel": channel.name}
        state = read_state(values, STATES)
        ids = values["id"].split(",") if "id" in values else []
        if len(ids) > IDS_MAX or not all(map(_ID.fullmatch, ids)):
            raise HttpError(400, "INVALID_ARG_ID")
        needle = read_needle(values)
        place = self._peek.places.read(queue_name(names), values, state)
        since_ns, terms = read_since(values), read_terms(values)
        target = None
        if action in {"copy", "move"}:
            target = self._publisher.open_topic(required(values, "to"))
        encoded = tuple(one.encode() for one in ids)
        return Choice(action, channel, state, target, encoded, needle, place, since_ns, terms)

    async def _change_one(self, choice: Choice) -> Response:
        picker = await self._run(choice)
        if isinstance(picker, Response):
            return picker
        return EMPTY if picker.changed else MESSAGE_NOT_FOUND

    async def _change(self, choice: Choice) -> Response:
        picker = await self._run(choice)
        if isinstance(picker, Response):
            return picker
        place = self._peek.places.write(queue_name(choice.names), picker.place_after)
        return json_answer(
            choice.names
            | {
                "state": choice.state,
                "examined": picker.examined,
                "changed": picker.changed,
                "next": place,
                "note": picker.remark,
            }
        )

    async def _run(self, choice: Choice) -> Picker | Response:
        """Examine a part; an answer where it was refused."""
        loop = asyncio.get_running_loop()
        errors: list[str | None] = []
        async with self._peek.turns:
            picker = choice.begin()
            due_s, ticket = time.perf_counter() + PART_S, 0
            try:
                while not picker.is_over:
                    if picker.must_wait:
                        await asyncio.sleep(LOG_WAIT_S)
                        continue
                    if picker.needs_thread:
                        await loop.run_in_executor(None, picker.search)
                    picker.go_on()
                    if picker.ticket != ticket:  # of these copies, whose error is everyone's
                        ticket = picker.ticket
                        self._peek.registry.durability.when_durable(ticket, errors.append)
                    if picker.place_after is not None and time.perf_counter() >= due_s:
                        break
                    await asyncio.sleep(0)
            except NotTakenError as error:
                return not_taken(error)
            finally:
                CHANGED[choice.action] += picker.changed
        if choice.channel.exiting:
            return EXITING
        answer = self._publisher.when_durable(ticket, errors)
        answer = answer if isinstance(answer, Response) else await answer
        if answer.status == 200:
            kept = when_kept(self._peek.registry, EMPTY)
            answer = kept if isinstance(kept, Response) else await kept
        return picker if answer.status == 200 else answer
