"""An event loop in a thread of its own, for programs that have none; `nsqfast.client.sync` runs on it.

It answers heartbeats whatever the program does meanwhile. Several threads may call it. A fork does not copy the thread;
owners of a loop thread check `is_ours`.
"""

import asyncio
import concurrent.futures
import inspect
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from nsqfast.errors import ClosedError, NsqfastError, OptionsError

T = TypeVar("T")

TURNS_TO_CLOSE = 5
SIGNAL_LOOK_S = 0.1


def check_threads() -> None:
    """Raise OptionsError if tasks that share one thread replace threads: an event loop in one of them would stop the
    others.
    """
    gevent = sys.modules.get("gevent.monkey")
    eventlet = sys.modules.get("eventlet.patcher")
    if gevent is not None and gevent.is_module_patched("threading"):
        name, cure = "gevent", "monkey.patch_all(thread=False)"
    elif eventlet is not None and eventlet.is_monkey_patched("thread"):
        name, cure = "eventlet", "eventlet.monkey_patch(thread=False)"
    else:
        return
    raise OptionsError(
        f"{name} has replaced threads, and nsqfast.client.sync needs a real one for its connections: "
        f"use {cure}, or publish over nsqd's HTTP port"
    )


class LoopThread:
    """Runs from construction to `stop`."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._name = name
        self._loop = new_event_loop()
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False
        self._calls: set[concurrent.futures.Future[Any]] = set()  # somebody waits for each of them
        self._callbacks: concurrent.futures.ThreadPoolExecutor | None = None
        self._callback_thread_id = 0
        # A daemon, so that a program that forgets to close it can still end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        """Whether this is still the process that created it."""
        return self._pid == os.getpid()

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the loop's."""
        return threading.get_ident() == self._thread.ident

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            try:
                self._loop.run_forever()
                self._loop.run_until_complete(_cancel_all())
            finally:
                self._loop.close()
        finally:
            for call in list(self._calls):  # the loop never ran these
                call.cancel()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop, after everything posted before; return its result, or raise its exception.

        ClosedError: the loop thread has been stopped.
        """
        if self.is_current:
            work.close()
            raise RuntimeError(
                "called in the thread that carries out all calls: what runs there (a log handler, say) may not wait"
            )
        ordered = self._after_posted(work)
        try:
            future = asyncio.run_coroutine_threadsafe(ordered, self._loop)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            raise _closed(ordered, work) from None
        self._calls.add(future)
        if self._loop.is_closed():  # `_run` may have looked before
            future.cancel()
        try:
            return _wait_done(future)
        except concurrent.futures.CancelledError:
            raise _closed(ordered, work) from None
        except (NsqfastError, TypeError, ValueError) as error:
            # The caller's mistake, or the broker's: what this thread and the loop did meanwhile says nothing of it.
            raise error.with_traceback(None)  # noqa: B904 - it is the same exception
        except BaseException:
            future.cancel()  # Ctrl-C during the wait
            raise
        finally:
            self._calls.discard(future)

    async def _after_posted(self, work: Coroutine[Any, Any, T]) -> T:
        self._do_posted()
        return await work

    def post(self, action: Callable[..., object], *arguments: Any) -> None:
        """Run it on the loop soon, in order; one wake-up serves everything posted meanwhile. No effect after a stop.

        Takes no lock and does not wait: a signal handler may call it.
        """
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

    def _do_posted(self) -> None:
        self._is_woken = False  # first: posts from here on wake the loop again
        while self._posted:
            action, arguments = self._posted.popleft()
            action(*arguments)

    # -- functions of the program that the loop waits for

    @property
    def is_inside(self) -> bool:
        """Whether the calling thread is the loop's, or the one that `call_back` uses."""
        return threading.get_ident() in {self._thread.ident, self._callback_thread_id}

    def call_back(self, function: Callable[..., T], *arguments: object) -> "asyncio.Future[T]":
        """For the loop: call it in another thread, one call at a time, in which everything is allowed."""
        if self._callbacks is None:
            self._callbacks = concurrent.futures.ThreadPoolExecutor(
                1, f"{self._name} callbacks", self._note_callback_thread
            )
        work = self._loop.run_in_executor(self._callbacks, function, *arguments)
        return asyncio.ensure_future(work, loop=self._loop)

    def _note_callback_thread(self) -> None:
        self._callback_thread_id = threading.get_ident()

    def stop(self) -> None:
        """End the thread, if it has not ended; callers that still wait get ClosedError."""
        if self._callbacks is not None:
            self._callbacks.shutdown(wait=False, cancel_futures=True)
        try:
            self._loop.call_soon_threadsafe(self._loop.stop)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
        if not self.is_current:
            self._thread.join()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed. It is half as large as all else that a client needs, so it is no dependency."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _wait_done(future: "concurrent.futures.Future[T]") -> T:
    """Wait for its result while signal handlers can run.

    Python runs them in the main thread, and a signal that another thread received, or that came just before the wait
    began, does not end the wait: so the wait ends by itself now and then.
    """
    if threading.current_thread() is not threading.main_thread():
        return future.result()
    while True:
        try:
            return future.result(SIGNAL_LOOK_S)
        except TimeoutError:
            if future.done():  # it may be the exception of the work itself
                return future.result()


async def _cancel_all() -> None:
    # An aborted connection is closed some turns later, and an open one delays the end of the loop. More calls may
    # arrive meanwhile.
    for _ in range(TURNS_TO_CLOSE):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


def _closed(*works: Coroutine[Any, Any, Any]) -> ClosedError:
    """The error for callers of these; coroutines that never began warn if they are not closed."""
    for work in works:
        if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()
    return ClosedError("its connections were closed")


async def run_on_loop(action: Callable[[], T]) -> T:
    """For `call`: run a plain function of an object that belongs to the loop."""
    return action()
