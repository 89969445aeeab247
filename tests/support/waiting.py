"""Waiting for what another process does and nothing announces.

The longer it takes, the seldomer a look: each may be a request, and what is waited for needs the processor, too.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

SECONDS_MAX = 50.0


def wait_until(
    reached: Callable[[], T],
    what: str | Callable[[], object] = "it",
    seconds_max: float = SECONDS_MAX,
) -> T:
    """What it returns once that is true; AssertionError with `what` when the time is up."""
    began_s = time.monotonic()
    while not (found := reached()):
        waited_s = time.monotonic() - began_s
        assert waited_s < seconds_max, (
            f"not in {seconds_max} s: {what() if callable(what) else what}"
        )
        time.sleep(_pause_s(waited_s))
    return found


def eventually(wanted: Callable[[], object], seconds_max: float = SECONDS_MAX) -> None:
    """The same without words for it."""
    wait_until(wanted, seconds_max=seconds_max)


async def until(wanted: Callable[[], object], seconds_max: float = SECONDS_MAX) -> None:
    """The same in an event loop."""
    began_s = time.monotonic()
    async with asyncio.timeout(seconds_max):
        while not wanted():
            await asyncio.sleep(_pause_s(time.monotonic() - began_s))


def _pause_s(waited_s: float) -> float:
    return min(max(0.002, waited_s / 10), 0.05)
