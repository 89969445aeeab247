"""One address that is asked repeatedly: at most one query at a time, and the outcome of the last ones.

UP      answered since the last tick
STALE   did not, once or twice in a row
DOWN    three times in a row, or never
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from nsqfast.nsqadmin.live.model import NodeState

MISSES_MAX = 3


class Question:
    """`ask` handles the answer itself and raises only what `Trouble` names; see `note_result`."""

    def __init__(self) -> None:
        self.state = NodeState.DOWN
        self.since = time.time()
        self.answered_at: float | None = None
        self.error = ""
        self.misses = 0
        self._task: asyncio.Task[str] | None = None
        self._asked_s = 0.0  # time.monotonic

    @property
    def is_suspect(self) -> bool:
        """Whether it did not answer the last time."""
        return self.misses > 0

    def ask(self, coroutine: Callable[[], Coroutine[Any, Any, str]]) -> asyncio.Task[str]:
        """Begin, unless the last query is still under way; the result is an error, '' for an answer."""
        if self._task is None:
            self._asked_s = time.monotonic()
            self._task = asyncio.get_running_loop().create_task(coroutine())
        return self._task

    def note_result(self, now: float) -> bool:
        """At the end of a tick: whether an answer came since the last one."""
        task = self._task
        if task is None:
            return False
        if not task.done():
            late_s = time.monotonic() - self._asked_s
            self._miss(now, f"no answer for {late_s:.1f} s")
            return False
        self._task = None
        error = "cancelled" if task.cancelled() else _result(task)
        if error:
            self._miss(now, error)
            return False
        self.misses, self.error, self.answered_at = 0, "", now
        self._become(NodeState.UP, now)
        return True

    def believe(
        self, state: NodeState, since: float, answered_at: float | None, error: str
    ) -> None:
        """As it was in the previous nsqadmin; the next answer, or three without one, say more."""
        self.state, self.since, self.answered_at, self.error = state, since, answered_at, error
        self.misses = MISSES_MAX if state is NodeState.DOWN else 0

    async def cancel(self) -> None:
        """Cancel the query under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def _miss(self, now: float, error: str) -> None:
        self.error = error
        self.misses += 1
        is_down = self.answered_at is None or self.misses >= MISSES_MAX
        self._become(NodeState.DOWN if is_down else NodeState.STALE, now)

    def _become(self, state: NodeState, now: float) -> None:
        if state is not self.state:
            self.state, self.since = state, now


def _result(task: asyncio.Task[str]) -> str:
    error = task.exception()
    return task.result() if error is None else f"{type(error).__name__}: {error}"
