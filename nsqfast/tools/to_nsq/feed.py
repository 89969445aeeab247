"""One address: sends MPUBs in order, without waiting for the answers of earlier ones.

nsqd refuses an MPUB that is too big as a whole, and ignores everything after it. From there on the pieces are published
one by one, as Go's tool always does, so that every piece before the faulty one is there, and none after it.
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import NoReturn

from nsqfast._ext.protocol.publish_command import Encoded
from nsqfast.client import (
    Config,
    NotConnectedError,
    Producer,
    PublishError,
    PublishRefusedError,
)
from nsqfast.client.config import seconds
from nsqfast.tools.shared.program import ToolError, log

WINDOW = 32  # MPUBs without an answer
SHOWN_SIZE = 40
TOO_BIG = frozenset(("E_BAD_MESSAGE", "E_BAD_BODY"))


@dataclass(frozen=True, slots=True)
class Group:
    """Pieces sent together; `answers` is empty if they are still to be sent, one by one."""

    bodies: Encoded
    answers: "list[asyncio.Future[None]]"


class Feed:
    """`delay_s`: how long each message is deferred, if not None."""

    def __init__(self, address: str, topic: str, config: Config, delay_s: float | None) -> None:
        self.address = address
        self.put_count = 0
        self.published_count = 0
        self._topic = topic
        self._config = config
        self._delay_s = delay_s
        self._is_single = False
        self._room = asyncio.Semaphore(WINDOW)
        self._groups: asyncio.Queue[Group] = asyncio.Queue()
        self._producer = self._make_producer()

    def _make_producer(self) -> Producer:
        return Producer(
            self.address,
            config=self._config,
            retries=0,
            timeout_s=seconds(self._config.read_timeout),
            close_timeout_s=0.0,
            # The window bounds the unanswered messages.
            buffer_count_max=sys.maxsize,
            buffer_bytes_max=sys.maxsize,
        )

    async def start(self) -> None:
        """Connect; ToolError if that fails, because nothing is retried."""
        await self._producer.start()
        if not self._producer.is_connected:
            raise ToolError(f"{self.address}: {self._producer.stats().errors[self.address]}")

    async def close(self) -> None:
        """Disconnect at once; unanswered messages are not sent again."""
        await self._producer.finish()

    # -- input

    async def put(self, bodies: Encoded) -> None:
        """Send these after all earlier ones; wait while too many are unanswered."""
        await self._room.acquire()
        if not self._producer.is_connected:
            # The code that waits for overdue answers decides how to continue.
            await self.join()
            await self._wait_connected()
        self.put_count += len(bodies)
        self._groups.put_nowait(Group(bodies, self._send(bodies)))

    async def _wait_connected(self) -> None:
        """A connection lost while nothing waited for an answer does no harm, if it is back at once."""
        if not self._producer.is_connected:
            try:
                await self._producer.ping(seconds(self._config.dial_timeout) or None)
            except NotConnectedError as error:
                raise ToolError(f"{self.address}: {error}") from None

    def _send(self, bodies: Encoded) -> "list[asyncio.Future[None]]":
        answers = [] if self._is_single else self._send_all(bodies)
        for answer in answers:
            # The first failure is reported; later ones are ignored.
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return answers

    def _send_all(self, bodies: Encoded) -> "list[asyncio.Future[None]]":
        if self._delay_s is None:
            return [self._producer.send_encoded(self._topic, bodies)]
        delay_s = self._delay_s
        return [self._producer.send_later(self._topic, body, delay_s) for body in bodies.bodies()]

    async def join(self) -> None:
        """Return when everything that was put is published."""
        await self._groups.join()

    # -- answers

    async def handle_answers(self) -> NoReturn:
        """Handle the answers, for ever; raises the error that ends the tool, after which nothing is sent."""
        while True:
            group = await self._groups.get()
            try:
                await self._await_group(group)
            except PublishError as error:
                await self.close()
                self._report_unknown(error)
                raise
            self._room.release()
            self._groups.task_done()

    def _report_unknown(self, error: PublishError) -> None:
        if not isinstance(error, PublishRefusedError):
            log.error(
                "%s: %d messages are there; up to %d more may be",
                self.address,
                self.published_count,
                self.put_count - self.published_count,
            )

    async def _await_group(self, group: Group) -> None:
        if self._delay_s is not None:
            return await self._await_deferred(group)
        try:
            for answer in group.answers:
                await answer
        except PublishError as error:
            if not self._is_single and not is_too_big(error):
                raise
            # Groups after a refused one have failed with its connection, and are sent again like it.
            await self._begin_single()
            return await self._publish_singly(group.bodies)
        if not group.answers:
            return await self._publish_singly(group.bodies)
        self.published_count += len(group.bodies)
        return None

    async def _await_deferred(self, group: Group) -> None:
        for body, answer in zip(group.bodies.bodies(), group.answers, strict=True):
            try:
                await answer
            except PublishError as error:
                raise self._named(error, body) from None
            self.published_count += 1

    async def _begin_single(self) -> None:
        if self._is_single:
            return
        self._is_single = True
        # Before it reconnects by itself, and sends the rest.
        await self.close()
        self._producer = self._make_producer()
        await self.start()

    async def _publish_singly(self, bodies: Encoded) -> None:
        for body in bodies.bodies():
            await self._wait_connected()
            try:
                await self._producer.publish(self._topic, body)
            except PublishError as error:
                raise self._named(error, body) from None
            self.published_count += 1

    def _named(self, error: PublishError, body: bytes) -> PublishError:
        """The unchanged error, after a line that names its message."""
        if isinstance(error, PublishRefusedError):
            log.error(
                "%s refuses message %d, of %d bytes, which begins with %r",
                self.address,
                self.published_count + 1,
                len(body),
                body[:SHOWN_SIZE],
            )
        return error


def is_too_big(error: PublishError) -> bool:
    """Whether the answer is about the size of a message, or of all together."""
    return isinstance(error, PublishRefusedError) and error.code in TOO_BIG
