"""Dead letters on their way back to the channels that they died in, or on their way out: POST /channel/redrive.

One of them for each channel at a time, with a rate of its own. They are kept in the data folder, so that a restart goes
on with them; what was moved is moved, what was deleted is gone, and how much that was is written now and then.
"""

import asyncio
import json
import logging
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from nsqfast._ext.broker.dead_letter_topic import DEFAULT_NAME, name_dead_letters
from nsqfast._ext.broker.message_queue import MessageQueue
from nsqfast._ext.broker.redrive import Redrive
from nsqfast._ext.broker.snapshot import Snapshot
from nsqfast.errors import OptionsError
from nsqfast.nsqd.metadata import keep_aside, read, write
from nsqfast.nsqd.options import REDRIVES_NAME
from nsqfast.wire.gotext import os_error
from nsqfast.wire.search import parse_search

if TYPE_CHECKING:
    from collections.abc import Callable

    from nsqfast._ext.broker.channel import Channel
    from nsqfast._ext.broker.topics import Topics
    from nsqfast.nsqd.deaths import DeathFile

REDRIVES_MAX = 1000  # that run at once, or are shown after their end
LOOK_COUNT = 100  # dead letters of which it is looked up at once where they died
TICK_S = 0.02  # between two steps of one that has a rate
WAIT_S = 0.05  # until it is tried again, where there is no room
KEEP_PERIOD_S = 5.0
RUNNING, DONE, CANCELLED, FAILED = "running", "done", "cancelled", "failed"

log = logging.getLogger("nsqd")


@dataclass(slots=True)
class Order:
    """What somebody asked for, and how far it is."""

    topic: str
    channel: str
    source: str  # topic of the dead letters
    source_channel: str  # '': its own queue
    rate: float  # messages a second; 0 = as fast as possible
    limit: int  # messages; 0 = all that were there
    filter: str  # '': all
    search: str = ""  # the same
    reason: str = ""  # one of REASONS; '': any
    delete: bool = False  # they go nowhere
    moved: int = 0  # or deleted
    left: int = 0  # to be examined
    state: str = RUNNING
    error: str = ""
    begun: int = field(default_factory=time.time_ns)


# A rate may be a whole number.
_KINDS: dict[str, Any] = {
    name: type(value) for name, value in asdict(Order("", "", "", "", 0, 0, "")).items()
} | {"rate": int | float}


def _read(found: Any) -> Order:
    """TypeError, ValueError: it is none."""
    order = Order(**found)
    for name, value in asdict(order).items():
        if not isinstance(value, _KINDS[name]):
            raise TypeError
    parse_search(order.search)
    return order


class Redrives:
    """Those of a broker."""

    def __init__(
        self, topics: "Topics", get_deaths: "Callable[[], DeathFile | None]", folder: str
    ) -> None:
        self._topics, self._get_deaths, self._folder = topics, get_deaths, folder
        self._orders: dict[tuple[str, str], Order] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._keeping = asyncio.Lock()

    def load(self) -> None:
        """Go on with those of an earlier run."""
        try:
            data = read(self._folder, REDRIVES_NAME)
            found = [] if data is None else [_read(each) for each in json.loads(data)["redrives"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = os_error(error) if isinstance(error, OSError) else "it is no list of redrives"
            try:
                kept = f"kept as {keep_aside(self._folder, REDRIVES_NAME)}"
            except OSError as failed:
                kept = f"not put aside - {os_error(failed)}"
            log.error("REDRIVE: %s cannot be used - %s; %s", REDRIVES_NAME, reason, kept)  # noqa: TRY400
            return
        for order in found:
            self._begin(order, order.begun)

    def find(self, topic: str, channel: str) -> Order | None:
        """The last one of that channel."""
        return self._orders.get((topic, channel))

    async def start(self, channel: "Channel", source_channel: str | None, **wish: Any) -> Order:
        """Begin one, which is kept on return. OptionsError: there is one already; LookupError: of what is not there;
        OSError: it could not be kept."""
        key = channel.topic_name, channel.name
        running = self._orders.get(key)
        if running is not None and running.state == RUNNING:
            raise OptionsError(f"one is running: {running.moved} messages were moved")
        source = self._name_source(channel)
        order = Order(*key, source, self._choose_queue(source, source_channel), **wish)
        while len(self._orders) >= REDRIVES_MAX:
            ended = next((each for each, one in self._orders.items() if one.state != RUNNING), None)
            if ended is None:
                raise OptionsError(f"{REDRIVES_MAX} are running")
            del self._orders[ended]
        self._begin(order)
        try:
            await self._keep()
        except OSError:
            await self.cancel(*key)
            raise
        return order

    async def cancel(self, topic: str, channel: str) -> Order:
        """End it; LookupError if none is running. OSError: a restart goes on with it."""
        order = self._orders.get((topic, channel))
        if order is None or order.state != RUNNING:
            raise LookupError
        order.state = CANCELLED
        self._tasks[topic, channel].cancel()
        await self._keep()
        return order

    async def close(self) -> None:
        """Stop them for now; a start goes on with them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._orders:
            try:
                await self._keep()
            except OSError as error:
                log.error("REDRIVE: how far they are is not kept - %s", os_error(error))  # noqa: TRY400

    def _name_source(self, channel: "Channel") -> str:
        letters = channel.dead_letters
        if letters is not None:
            return letters.name
        return name_dead_letters(DEFAULT_NAME, channel.topic_name, channel.name)

    def _choose_queue(self, source: str, channel: str | None) -> str:
        """The name of the channel, or '' for the topic's own queue."""
        topic = self._topics.find(source)
        if topic is None:
            raise LookupError("NO_DEAD_LETTERS")
        names = [each.name for each in topic.channels()]
        if channel is None:
            channel = names[0] if len(names) == 1 else ""
            if len(names) > 1:
                raise LookupError("MISSING_ARG_FROM")
        elif channel not in names:
            raise LookupError("CHANNEL_NOT_FOUND")
        return channel

    def _begin(self, order: Order, until_ns: int = 0) -> None:
        key = order.topic, order.channel
        self._orders.pop(key, None)
        self._orders[key] = order
        self._tasks[key] = asyncio.get_running_loop().create_task(self._run(order, until_ns))

    async def _run(self, order: Order, until_ns: int) -> None:
        key = order.topic, order.channel
        before = order.moved
        try:
            await self._move(order, until_ns)
        except (LookupError, MemoryError) as error:
            order.state = FAILED
            order.error = "no memory" if isinstance(error, MemoryError) else str(error.args[0])
        else:
            order.state = DONE
        finally:
            self._tasks.pop(key, None)
            log.info(
                "REDRIVE(%s:%s): %s, %d messages%s%s",
                *key,
                order.state,
                order.moved - before,
                " deleted" if order.delete else "",
                f" - {order.error}" if order.error else "",
            )
        try:
            await self._keep()
        except OSError as error:
            log.error("REDRIVE: its end is not kept - %s", os_error(error))  # noqa: TRY400

    def _open(self, order: Order, until_ns: int) -> tuple[Redrive, MessageQueue]:
        """What moves them, and where they are; LookupError."""
        topic, source_topic = self._topics.find(order.topic), self._topics.find(order.source)
        channel = None if topic is None else topic.find_channel(order.channel)
        source: MessageQueue | None = source_topic
        if source_topic is not None and order.source_channel:
            source = source_topic.find_channel(order.source_channel)
        if topic is None or channel is None:
            raise LookupError("the channel is deleted")
        if source is None:
            raise LookupError("the dead letters are deleted")
        needle = order.filter.encode("utf-8", "surrogateescape")
        terms = parse_search(order.search)
        redrive = Redrive(source, topic, channel, needle, order.delete, until_ns, terms)
        return redrive, source

    async def _move(self, order: Order, until_ns: int) -> None:
        redrive, source = self._open(order, until_ns)
        before, kept_s, begun_s = order.moved, time.monotonic(), time.monotonic()
        is_shared = order.source != name_dead_letters(DEFAULT_NAME, order.topic, order.channel)
        needs_look = bool(is_shared or order.reason)
        order.left = redrive.left_count
        while redrive.left_count and not (order.limit and order.moved >= order.limit):
            if redrive.is_gone:
                raise LookupError(
                    f"the {'dead letters are' if source.exiting else 'channel is'} deleted"
                )
            now_s = time.monotonic()
            most = order.limit - order.moved if order.limit else redrive.left_count
            if order.rate:
                allowed = int((now_s - begun_s + TICK_S) * order.rate) - (order.moved - before)
                most = min(most, allowed)
            choices = await self._look(order, source) if needs_look and most > 0 else None
            has_room = most <= 0 or redrive.go_on(most, choices)
            order.moved, order.left = before + redrive.moved_count, redrive.left_count
            if now_s - kept_s > KEEP_PERIOD_S:
                kept_s = now_s
                await self._keep()
            await asyncio.sleep(WAIT_S if not has_room else TICK_S if order.rate else 0)

    async def _look(self, order: Order, source: MessageQueue) -> dict[int, bool]:
        """Whether they died in this channel, and for that reason: the first ones, by id."""
        snapshot = Snapshot(source, "ready", LOOK_COUNT, 0, 0, b"", None, 0)
        if snapshot.needs_thread:
            await asyncio.get_running_loop().run_in_executor(None, snapshot.complete)
        ids = snapshot.ids()
        deaths = self._get_deaths()
        known = {} if deaths is None else await deaths.find(order.source, ids)
        own = (order.topic, order.channel)
        chosen = {
            each
            for each, death in known.items()
            if (death["topic"], death["channel"]) == own and order.reason in ("", death["reason"])
        }
        return {int(each, 16): each in chosen for each in ids}

    async def _keep(self) -> None:
        async with self._keeping:
            running = [asdict(each) for each in self._orders.values() if each.state == RUNNING]
            data = json.dumps({"redrives": running}, indent=1).encode()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, write, self._folder, data, REDRIVES_NAME)
