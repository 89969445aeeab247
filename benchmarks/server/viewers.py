"""An nsqadmin under test, and viewers: each requests what its pages would, when the previous answer told it to."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp

from support.server import Server, program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECONDS_MAX = 60.0
PING_INTERVAL_S = 0.02
NEXT_MS = "Nsqadmin-Next-Ms"


@contextlib.contextmanager
def nsqadmin(lookupds: Sequence[str]) -> Iterator[Server]:
    """Run ours, on a free port."""
    flags = [f"--lookupd-http-address={address}" for address in lookupds]
    command = [*program("nsqadmin", "nsqfast"), "--http-address=127.0.0.1:0", *flags]
    with Server(command, ("HTTP",)) as server:
        yield server


@dataclass(slots=True)
class Seen:
    """What all viewers measured; seconds."""

    answers: int = 0
    ticks: set[int] = field(default_factory=set)
    live: list[float] = field(default_factory=list)
    pings: list[float] = field(default_factory=list)


class Viewers:
    """`look` for a while; they keep their connections between two calls."""

    def __init__(self, server: Server, pages: Sequence[str]) -> None:
        self._base = "http://{}:{}".format(*server.http)
        self._pages = pages

    async def wait_for_nodes(self, count: int) -> None:
        """Wait until it has polled so many nsqds."""
        async with aiohttp.ClientSession() as session, asyncio.timeout(SECONDS_MAX):
            while True:
                async with session.get(self._base + "/api/nodes") as answer:
                    found = await answer.json()
                if len(found.get("nodes") or ()) == count:
                    return
                await asyncio.sleep(0.1)

    async def look(self, seconds: float) -> Seen:
        """Run all of them, and one that measures how long the loop is busy."""
        seen = Seen()
        ends = time.perf_counter() + seconds
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            group.create_task(self._ping(session, seen, ends))
            for page in self._pages:
                group.create_task(self._view(session, page, seen, ends))
        return seen

    async def _view(
        self, session: aiohttp.ClientSession, page: str, seen: Seen, ends: float
    ) -> None:
        since = ""
        while (now := time.perf_counter()) < ends:
            query = {"view": page, "since": since}
            async with session.get(self._base + "/ui/live", params=query) as answer:
                if answer.status == 200:
                    since = str((await answer.json())["tick"])
                    seen.ticks.add(int(since))
                elif answer.status != 204:
                    raise AssertionError(f"{page}: {answer.status} {await answer.text()}")
                next_s = int(answer.headers[NEXT_MS]) / 1000
            seen.answers += 1
            seen.live.append(time.perf_counter() - now)
            await asyncio.sleep(min(next_s, max(ends - time.perf_counter(), 0)))

    async def _ping(self, session: aiohttp.ClientSession, seen: Seen, ends: float) -> None:
        while (now := time.perf_counter()) < ends:
            async with session.get(self._base + "/ping") as answer:
                await answer.read()
            seen.pings.append(time.perf_counter() - now)
            await asyncio.sleep(PING_INTERVAL_S)
