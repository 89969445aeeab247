"""Look at the waiting messages of a topic or channel.

nsqd has none of this. A look changes nothing: no attempt is counted, nothing is taken, moved or finished. It shows one
moment, and is made in slices, between which the loop serves others (see nsqfast._ext.broker.snapshot).
"""

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from nsqfast._ext.broker.calendar import STEPS_MAX, DeferralCalendar
from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.message_queue import MessageQueue
from nsqfast._ext.broker.snapshot import (
    LIMIT_MAX,
    NEEDLE_SIZE_MAX,
    OFFSET_MAX,
    PIECE_SIZE_MAX,
    STATES,
    Snapshot,
)
from nsqfast._ext.broker.topic import Topic
from nsqfast.net.http_message import JSON, Request, Response
from nsqfast.net.http_reply import (
    VERSION_HEADER,
    HttpError,
    encode_json,
    json_answer,
    parameters,
    topic_and_channel_name,
    topic_name,
)
from nsqfast.net.slices import Slices
from nsqfast.nsqd.broker import Broker
from nsqfast.wire.search import parse_search

LIMIT_DEFAULT = 20
# Bytes of JSON after which an answer ends early, because it is assembled and written to the socket in one go.
ANSWER_SIZE_MAX = 2 << 20
# Each may hold LIMIT_MAX bodies' pieces, and a thread while it reads the disk.
PEEKS_MAX = 4
SINCE_MAX = 2**63 - 1
NS = 10**9
# Of a calendar: a day in hours, and no step longer than a deferral.
STEP_DEFAULT_S, STEPS_DEFAULT = 3600, 24
STEP_MAX_S = 90 * 86400

_NUMBER = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Look:
    """The parameters of a request."""

    state: str
    limit: int
    offset: int
    piece_max: int
    needle: bytes
    place: tuple[int, ...] | None
    since_ns: int
    terms: tuple[tuple[bytes, bytes], ...]

    def take_snapshot(self, queue: MessageQueue) -> Snapshot:
        """As it is now."""
        return Snapshot(
            queue,
            self.state,
            self.limit,
            self.offset,
            self.piece_max,
            self.needle,
            self.place,
            self.since_ns,
            self.terms,
        )


class Places:
    """Places in queues, as texts that only this process can make: a wrong one would name other messages.

    A place is 5 numbers, or 7 with the end of what is to be examined (Snapshot.next_place, Picker.place_after).
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)

    def write(self, queue: str, place: tuple[int, ...] | None) -> str | None:
        """The text of a place in that queue."""
        if place is None:
            return None
        text = "-".join(f"{number:x}" for number in place)
        return f"{text}-{self._sign(queue, text)}"

    def read(self, queue: str, values: dict[str, str], state: str) -> tuple[int, ...] | None:
        """The place of the parameter `from`, as 7 numbers; None if there is none. 400: of another queue or run."""
        given = values.get("from")
        if given is None:
            return None
        text, _, signature = given.rpartition("-")
        if state != "ready" or not hmac.compare_digest(
            self._sign(queue, text), signature.encode("ascii", "replace").decode()
        ):
            raise HttpError(400, "INVALID_ARG_FROM")
        numbers = tuple(int(part, 16) for part in text.split("-"))
        return numbers if len(numbers) == 7 else (*numbers, 0, 0)

    def _sign(self, queue: str, text: str) -> str:
        whole = f"{queue}\n{text}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(whole, key=self._key, digest_size=8).hexdigest()


class Peek:
    """Handlers of /channel/peek and /topic/peek; `turns` are for all that searches queues."""

    def __init__(self, broker: Broker) -> None:
        self.registry = broker.registry
        self._broker = broker
        self.places = Places()
        self.turns = asyncio.Semaphore(PEEKS_MAX)

    def peek_channel(self, request: Request) -> Awaitable[Response]:
        """JSON of ready, in-flight or deferred messages; see docs/PEEK.md."""
        values = parameters(request)
        channel = self.channel(values)
        names = {"topic": channel.topic_name, "channel": channel.name}
        return self._show(channel, names, values, STATES)

    def peek_topic(self, request: Request) -> Awaitable[Response]:
        """The same for the topic's own messages: it has no channel, or is paused."""
        values = parameters(request)
        topic = self._topic(topic_name(values))
        return self._show(topic, {"topic": topic.name}, values, ("ready",))

    def show_calendar(self, request: Request) -> Awaitable[Response]:
        """JSON of how many of a channel's deferred messages are due in which step of time; see docs/PEEK.md."""
        values = parameters(request)
        channel = self.channel(values)
        step_s = _read_number(values, "step", STEP_DEFAULT_S, 1, STEP_MAX_S)
        count = _read_number(values, "count", STEPS_DEFAULT, 1, STEPS_MAX)
        now_s = time.time_ns() // NS
        first_s = _read_number(values, "first", now_s - now_s % step_s, 0, SINCE_MAX // NS)
        return self._count(channel, first_s, step_s, count)

    async def _count(self, channel: Channel, first_s: int, step_s: int, count: int) -> Response:
        async with self.turns:
            taken_ns, is_over = time.time_ns(), False
            calendar = DeferralCalendar(channel, first_s * NS, step_s * NS, count)
            while not is_over:
                is_over = calendar.go_on()
                await asyncio.sleep(0)
        return json_answer(
            {
                "topic": channel.topic_name,
                "channel": channel.name,
                "taken_at": taken_ns,
                "deferred_count": channel.deferred_count,
                "step": step_s,
                "first": first_s,
                "counts": calendar.counts,
                "later": calendar.later_count,
                "last_due": calendar.last_ns or None,
            }
        )

    def channel(self, values: dict[str, str]) -> Channel:
        """The channel of the parameters; HttpError."""
        topic, name = topic_and_channel_name(values)
        channel = self._topic(topic).find_channel(name)
        if channel is None:
            raise HttpError(404, "CHANNEL_NOT_FOUND")
        return channel

    def _topic(self, name: str) -> Topic:
        topic = self.registry.topics.find(name)
        if topic is None:
            raise HttpError(404, "TOPIC_NOT_FOUND")
        return topic

    def _show(
        self,
        queue: MessageQueue,
        names: dict[str, str],
        values: dict[str, str],
        states: tuple[str, ...],
    ) -> Awaitable[Response]:
        name = queue_name(names)
        return self._answer(queue, names, _read_look(values, states, name, self.places))

    async def _find_deaths(self, names: dict[str, str], snapshot: Snapshot) -> dict[str, Any]:
        """What is known of those that are dead letters, by id."""
        topic = self.registry.topics.find(names["topic"])
        if self._broker.deaths is None or topic is None or topic.deaths is None:
            return {}
        return await self._broker.deaths.find(topic.name, snapshot.ids())

    async def _answer(self, queue: MessageQueue, names: dict[str, str], look: Look) -> Response:
        async with self.turns:
            snapshot = look.take_snapshot(queue)
            if snapshot.needs_thread:
                # A cold disk may take its time; what is searched is copied or kept alive by the snapshot.
                await asyncio.get_running_loop().run_in_executor(None, snapshot.complete)
            messages = await _encode_messages(snapshot, await self._find_deaths(names, snapshot))
        head = encode_json(
            {
                **names,
                "state": look.state,
                "taken_at": snapshot.taken_ns,
                "depth": snapshot.depth,
                "offset": look.offset,
                "scanned": snapshot.scanned,
                "is_complete": snapshot.is_complete,
                "next_offset": snapshot.next_offset,
                "next": self.places.write(queue_name(names), snapshot.next_place),
                "note": snapshot.remark,
            }
        )
        body = b'%b,"messages":[%b]}' % (head[:-1], b",".join(messages))
        return Response(200, body, JSON, VERSION_HEADER)


async def _encode_messages(snapshot: Snapshot, deaths: dict[str, Any]) -> list[bytes]:
    """In slices of time: bodies can be large. Those that do not fit into the answer are cut off the snapshot."""
    encoded: list[bytes] = []
    size, count = 0, len(snapshot)
    slices = Slices()
    for index in range(count):
        row = snapshot.row(index)
        encoded.append(encode_json(_message(row, deaths.get(row["id"]), snapshot.taken_ns)))
        size += len(encoded[-1])
        if size >= ANSWER_SIZE_MAX and index + 1 < count:
            snapshot.keep_first(index + 1)
            break
        await slices.pause()
    return encoded


def _message(row: dict[str, Any], death: Any, now_ns: int) -> dict[str, Any]:
    due_ns, consumer = row["due_ns"], row["consumer"]
    is_truncated = len(row["piece"]) < row["size"]
    body, encoding = _encode_body(row["piece"], is_truncated)
    return {
        "id": row["id"],
        "timestamp": row["timestamp_ns"],
        "age_ms": max(now_ns - row["timestamp_ns"], 0) // 1_000_000,
        "attempts": row["attempts"],
        **({"failures": row["failures"]} if row["failures"] else {}),
        **({} if death is None else {"death": death}),
        "size": row["size"],
        "where": row["where"],
        "due": due_ns,
        "due_in_ms": None if due_ns is None else (due_ns - now_ns) // 1_000_000,
        "client": None if consumer is None else _client(consumer),
        "body": body,
        "encoding": encoding,
        "is_truncated": is_truncated,
    }


def _client(consumer: Any) -> dict[str, str]:
    return {
        "client_id": consumer.client_id,
        "hostname": consumer.hostname,
        "remote_address": consumer.client.remote_address,
    }


def _encode_body(piece: bytes, is_truncated: bool) -> tuple[str, str]:
    """(text, "text") if it is UTF-8, except for a last character that was cut in two; otherwise (..., "base64")."""
    try:
        return piece.decode(), "text"
    except UnicodeDecodeError as error:
        if is_truncated and error.reason == "unexpected end of data":
            return piece[: error.start].decode(), "text"
    return base64.b64encode(piece).decode("ascii"), "base64"


def queue_name(names: dict[str, str]) -> str:
    """Of a topic, or of a channel: different ones for all queues."""
    return ":".join(names.values())


def read_state(values: dict[str, str], states: tuple[str, ...]) -> str:
    """The parameter `state`; HttpError."""
    state = values.get("state", "ready")
    if state not in states:
        raise HttpError(400, "INVALID_ARG_STATE")
    return state


def read_needle(values: dict[str, str]) -> bytes:
    """The parameter `filter`; HttpError."""
    needle = values.get("filter", "").encode("utf-8", "surrogateescape")
    if len(needle) > NEEDLE_SIZE_MAX:
        raise HttpError(400, "INVALID_ARG_FILTER")
    return needle


def read_terms(values: dict[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    """The parameter `search`; HttpError."""
    try:
        return parse_search(values.get("search", ""))
    except ValueError as error:
        raise HttpError(400, "INVALID_ARG_SEARCH", str(error)) from None


def read_since(values: dict[str, str]) -> int:
    """The parameter `since`, Unix time in ns; 0 = ever. HttpError."""
    return _read_number(values, "since", 0, 0, SINCE_MAX)


def _read_look(values: dict[str, str], states: tuple[str, ...], queue: str, places: Places) -> Look:
    state = read_state(values, states)
    place = places.read(queue, values, state)
    return Look(
        state,
        _read_number(values, "limit", LIMIT_DEFAULT, 1, LIMIT_MAX),
        _read_number(values, "offset", 0, 0, OFFSET_MAX),
        _read_number(values, "max_body", PIECE_SIZE_MAX, 0, PIECE_SIZE_MAX),
        read_needle(values),
        place,
        read_since(values),
        read_terms(values),
    )


def _read_number(values: dict[str, str], key: str, default: int, least: int, most: int) -> int:
    text = values.get(key)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise HttpError(400, f"INVALID_ARG_{key.upper()}")
    return int(text)
