"""The topics that a tool consumes: the given ones, or those that nsqlookupd lists and a pattern matches."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from nsqfast.client.config import Config
from nsqfast.client.connection import lookupd_context
from nsqfast.errors import NsqfastError
from nsqfast.program.options import PlainError
from nsqfast.tools.shared.discovery import HttpClient, base_url, list_topics
from nsqfast.tools.shared.program import ToolError, log
from nsqfast.wire.names import describe_invalid, is_valid_name

NS = 1_000_000_000
RETRY_S = 5.0  # if no nsqlookupd answered


class TopicFlags(Protocol):
    """A tool's flags about topics; durations are in nanoseconds."""

    topic: list[str]
    topic_pattern: str
    topic_refresh_ns: int
    lookupd_http_address: list[str]
    consumer_opt: list[str]
    http_client_connect_timeout_ns: int
    http_client_request_timeout_ns: int


def check_topics(options: TopicFlags) -> None:
    """PlainError unless there are topics, or a pattern and an nsqlookupd to ask."""
    if not options.topic and not options.topic_pattern:
        raise PlainError("--topic or --topic-pattern required")
    if not options.topic and not options.lookupd_http_address:
        raise PlainError("--lookupd-http-address must be specified when no --topic specified")
    import re2

    quiet = re2.Options()
    quiet.log_errors = False
    try:
        re2.compile(options.topic_pattern, quiet)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PlainError(f"--topic-pattern: {text}") from None


class Topics:
    """Calls `begin` once for each wanted topic; if that raises an NsqfastError, again when nsqlookupd lists the
    topic again. `work` says what is done with a topic ("archived"); `complaint` begins the line about one that
    cannot be begun.
    """

    def __init__(
        self,
        options: TopicFlags,
        work: str,
        complaint: str,
        begin: Callable[[str], Awaitable[None]],
    ) -> None:
        import re2

        self.begun: set[str] = set()
        self._options = options
        self._work = work
        self._complaint = complaint
        self._begin = begin
        self._pattern = re2.compile(options.topic_pattern)
        self._refused: set[str] = set()  # topics already reported as left out

    async def run(self, is_over: asyncio.Event) -> None:
        """Return at the end; ToolError if none of the given topics is possible."""
        if self._options.topic:
            await self.begin_given()
            if not self.begun and not is_over.is_set():
                raise ToolError(f"no topic can be {self._work}")
            await is_over.wait()
        else:
            await self._follow(is_over)

    async def begin_given(self) -> None:
        """Begin the given topics that match the pattern."""
        await self._begin_all(dict.fromkeys(self._options.topic))

    async def _begin_all(self, topics: Iterable[str]) -> None:
        wanted = [topic for topic in topics if self._is_wanted(topic)]
        await asyncio.gather(*map(self._begin_one, wanted))

    def _is_wanted(self, topic: str) -> bool:
        if self._pattern.search(topic):
            return True
        pattern = self._options.topic_pattern
        text = f"skipping topic {topic} (doesn't match pattern {pattern})"
        self._say_once(topic, logging.WARNING, text)
        return False

    async def _begin_one(self, topic: str) -> None:
        try:
            if not is_valid_name(topic):
                raise ToolError(describe_invalid(topic))
            await self._begin(topic)
        except NsqfastError as error:
            self._say_once(topic, logging.ERROR, f"{self._complaint} {topic}: {error}")
            return
        self._refused.discard(topic)
        self.begun.add(topic)

    def _say_once(self, topic: str, level: int, text: str) -> None:
        if topic not in self._refused:
            self._refused.add(topic)
            log.log(level, text)

    # -- topics that nsqlookupd lists

    async def _follow(self, is_over: asyncio.Event) -> None:
        """A topic that vanishes from the list continues: its nsqd may be back soon."""
        over = asyncio.ensure_future(is_over.wait())
        try:
            async with self.make_client() as client:
                while not is_over.is_set():
                    is_answered = await self.begin_listed(client)
                    pause_s = self._options.topic_refresh_ns / NS
                    if not is_answered:
                        pause_s = min(pause_s, RETRY_S)
                    await asyncio.wait([over], timeout=pause_s)
        finally:
            over.cancel()

    def make_client(self) -> HttpClient:
        """The client for `begin_listed`."""
        return HttpClient(
            self._options.http_client_connect_timeout_ns / NS,
            self._options.http_client_request_timeout_ns / NS,
            lookupd_context(Config.parse(self._options.consumer_opt)),
        )

    async def begin_listed(self, client: HttpClient) -> bool:
        """Begin the listed topics that were not begun; returns whether any nsqlookupd answered."""
        lookupds = [
            base_url(address, "--lookupd-http-address")
            for address in self._options.lookupd_http_address
        ]
        topics, errors = await list_topics(client, lookupds)
        for error in errors:
            log.warning("nsqlookupd: %s", error)
        await self._begin_all(sorted(topics - self.begun))
        return len(errors) < len(lookupds)
