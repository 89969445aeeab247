"""Who has more to do than fits into a part of a turn of the loop goes on in later turns."""

import asyncio
from collections import deque
from collections.abc import Callable

from nsqfast._ext.core.budget import Part

CALL_UNITS = 64  # of a budget: the clock is looked at after each of them


class Turns:
    """Connections that sent more than a part is enough for go on in later turns: in their order, and all of them
    together for a part in each.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    def join(self, go_on: Callable[[], None]) -> None:
        """To be called once, behind those that are here already."""
        self._waiting.append(go_on)
        self._run_soon()

    def _run_soon(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        part = Part()
        try:
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
                if part.is_spent(CALL_UNITS):
                    break
        finally:
            self._run_soon()
