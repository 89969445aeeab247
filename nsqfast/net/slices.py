"""Long work on the loop, in slices between which everybody else gets a turn."""

import asyncio
from collections.abc import Iterable

from nsqfast._ext.core.budget import Part

CLOCK_UNITS = 64  # of a budget: the clock is read after so many


class Slices:
    """Call `await slices.pause()` as often as you like: it lets others run when the slice is used up.

    A slice is a compiled `Part`, in which code counts that cannot wait.
    """

    def __init__(self) -> None:
        self._part = Part()

    async def pause(self, units: int = CLOCK_UNITS) -> None:
        """Let others run, if it is time to; `units` are the work since the last call."""
        if self._part.is_spent(units):
            await asyncio.sleep(0)
            self._part = Part()


def run_slice(steps: Iterable[object], units: int) -> bool:
    """Run a slice of these steps, of so many units each; whether all are done."""
    part = Part()
    return not any(part.is_spent(units) for _ in steps)
