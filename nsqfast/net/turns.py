"""Spread work that exceeds a part of a turn of the loop over later turns."""

import asyncio
from collections import deque
from collections.abc import Callable

from nsqfast._ext.core.budget import Part

CALL_UNITS = 64  # of a budget: the clock is read after each of them


class Turns:
    """Connections that sent more input than fits a part continue in later turns: in order, sharing one part of each
    turn.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    def join(self, go_on: Callable[[], None]) -> None:
        """Call this once; the caller waits behind those already here."""
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
