"""Threads in which plain functions may block, while the event loop goes on."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """From construction to `stop`. They are daemons: a function that never returns does not hold up the end."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._run, name=f"{name} {number}", daemon=True).start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    async def call(self, function: Callable[[], T]) -> T:
        """Call it in one of the threads, with the context variables of the caller."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        context = contextvars.copy_context()
        results: list[T] = []
        errors: list[BaseException] = []

        def finish() -> None:
            if not done.done():  # nobody waits any more
                done.set_result(None)

        def work() -> None:
            try:
                results.append(context.run(function))
            except BaseException as error:
                errors.append(error)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish)

        self._work.put(work)
        await done
        if errors:
            raise errors[0]
        return results[0]

    def stop(self) -> None:
        """End each thread once it has nothing to do."""
        for _ in range(self._count):
            self._work.put(None)
