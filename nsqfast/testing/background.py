"""What lives in an event loop, for those that live in another one, or in none."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Self, TypeVar

from nsqfast.client.sync.loop_thread import check_threads
from nsqfast.program.extras import needs

T = TypeVar("T")
R = TypeVar("R")


class Background(Generic[T]):
    """Enters an asynchronous context in a thread with an event loop of its own, and leaves it at the end."""

    value: T  # what the context gave

    def __init__(self, context: AbstractAsyncContextManager[T], name: str) -> None:
        self._context = context
        self._entered: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._left: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        check_threads()
        self._thread.start()
        self.value = self._entered.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()
        self._left.result()

    def submit(self, work: Coroutine[Any, Any, R]) -> "concurrent.futures.Future[R]":
        """Run it in that loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, action: Callable[..., R], *arguments: object) -> R:
        """Call a plain function in that loop, and return its result."""

        async def act() -> R:
            return action(*arguments)

        return self.submit(act()).result()

    def _run(self) -> None:
        try:
            with needs("nsqfast.testing", "server"):
                import uvloop

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._live())
        except BaseException as error:
            (self._left if self._entered.done() else self._entered).set_exception(error)
        else:
            self._left.set_result(None)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_over = asyncio.Event()
        async with self._context as value:
            self._entered.set_result(value)
            await self._is_over.wait()
