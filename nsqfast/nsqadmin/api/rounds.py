"""Identical requests at the same time share one round of queries to the cluster.

No answer is older than its request: a round serves only requests that came before it began. While one is under way, the
next one collects new requests, and begins when the current one ends, or after `GATHER_S`, so that a node that does not
answer delays nobody twice.
"""

import asyncio
from collections.abc import Awaitable, Callable

GATHER_S = 0.1


class Rounds:
    """Keys identify the queries."""

    def __init__(self) -> None:
        self._gathering: dict[str, asyncio.Task[bytes]] = {}
        self._asking: dict[str, asyncio.Task[bytes]] = {}

    async def ask(self, key: str, question: Callable[[], Awaitable[bytes]]) -> bytes:
        """The result of a `question` that was asked after this call began."""
        round_ = self._gathering.get(key)
        if round_ is None:
            round_ = asyncio.get_running_loop().create_task(self._run(key, question))
            round_.add_done_callback(_forget_error)
            self._gathering[key] = round_
        # The round continues for the others when one of them leaves.
        return await asyncio.shield(round_)

    async def _run(self, key: str, question: Callable[[], Awaitable[bytes]]) -> bytes:
        before = self._asking.get(key)
        if before is not None:
            await asyncio.wait([before], timeout=GATHER_S)
        this = self._gathering.pop(key)
        self._asking[key] = this
        try:
            return await question()
        finally:
            if self._asking.get(key) is this:
                del self._asking[key]


def _forget_error(round_: asyncio.Task[bytes]) -> None:
    """Nobody may be left to receive it."""
    if not round_.cancelled():
        round_.exception()
