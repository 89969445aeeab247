"""Long work on the loop, in slices between which everybody else gets a turn."""

import asyncio
import time
from typing import TypeVar

SLICE_S = 0.001

T = TypeVar("T")


class Slices:
    """Call `await slices.pause()` as often as you like: it lets others run when the slice is used up."""

    def __init__(self) -> None:
        self._end_s = time.perf_counter() + SLICE_S

    @property
    def is_over(self) -> bool:
        """Whether it is time to pause."""
        return time.perf_counter() >= self._end_s

    async def pause(self) -> None:
        """Let others run, if it is time to."""
        if self.is_over:
            await asyncio.sleep(0)
            self._end_s = time.perf_counter() + SLICE_S
