"""An event loop in a thread of its own, for programs that have none: what `nsqfast.client.sync` runs on.

Heartbeats are answered whatever the program does meanwhile. Calls from several threads are fine. A fork does not take
the thread along; whoever owns an engine asks `is_ours`.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from nsqfast.errors import ClosedError

T = TypeVar("T")


class Engine:
    """Runs from its making to `stop`."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = uvloop.new_event_loop()
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False
        # A daemon: a program that forgets to close is not kept from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        """Whether this is still the process that made it."""
        return self._pid == os.getpid()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop, after all that was posted; wait for its result, or raise what it raised.

        ClosedError: the engine has been stopped.
        """
        ordered = self._after_posted(work)
        try:
            future = asyncio.run_coroutine_threadsafe(ordered, self._loop)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            ordered.close()
            work.close()
            raise ClosedError("its connections were closed") from None
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while waiting
            raise

    async def _after_posted(self, work: Coroutine[Any, Any, T]) -> T:
        self._do_posted()
        return await work

    def post(self, action: Callable[..., object], *arguments: Any) -> None:
        """Run it on the loop soon, in order; one wake-up serves all that was posted meanwhile. Not after a stop."""
        self._posted.append((action, arguments))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._do_posted)
            except RuntimeError:
                if not self._loop.is_closed():
                    raise
                self._posted.clear()
                self._is_woken = False

    @property
    def posted_count(self) -> int:
        """What the loop has not done yet."""
        return len(self._posted)

    def _do_posted(self) -> None:
        self._is_woken = False  # first: what is posted from here on wakes again
        while self._posted:
            action, arguments = self._posted.popleft()
            action(*arguments)

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
