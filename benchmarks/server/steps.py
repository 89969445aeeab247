"""The CPU time of each step of a loop's tasks, not affected by what else runs on the machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Generator
from typing import Any


class Steps:
    """`longest_s` since the last `reset`, of all tasks created since `watch`."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Time all tasks of this loop from now on."""
        loop.set_task_factory(self._make)

    def reset(self) -> None:
        """Forget the steps until now."""
        self.longest_s = 0.0

    def add(self, began_s: float) -> None:
        """Add a step that began at this time.thread_time, and ends now."""
        self.longest_s = max(self.longest_s, time.thread_time() - began_s)

    def _make(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **named: Any,
    ) -> asyncio.Task[Any]:
        if asyncio.iscoroutine(coroutine):
            coroutine = Timed(coroutine, self)
        return asyncio.Task(coroutine, loop=loop, **named)  # type: ignore[arg-type]


class Timed(Coroutine[Any, Any, Any]):
    """A coroutine whose every step is timed."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], steps: Steps) -> None:
        self._coroutine, self._steps = coroutine, steps

    def send(self, value: Any) -> Any:
        began_s = time.thread_time()
        try:
            return self._coroutine.send(value)
        finally:
            self._steps.add(began_s)

    def throw(self, *error: Any) -> Any:
        began_s = time.thread_time()
        try:
            return self._coroutine.throw(*error)
        finally:
            self._steps.add(began_s)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, None, Any]:
        raise TypeError("it is a task's own")
