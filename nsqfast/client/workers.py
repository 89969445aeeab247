"""Handlers of messages: this many tasks, each with one message at a time, until the inbox ends."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from nsqfast._ext.client.consume_connection import Message, MessageQueue
from nsqfast.client.callbacks import is_cancelled
from nsqfast.client.failures import Failures
from nsqfast.errors import NsqfastError

Handler = Callable[[Message], Awaitable[object] | object]


class Workers:
    """Work begins at construction."""

    def __init__(
        self,
        handler: Handler,
        concurrency: int,
        inbox: MessageQueue,
        failures: Failures,
        name: str,
    ) -> None:
        self._handler = handler
        self._inbox = inbox
        self._failures = failures
        self._name = name
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._work(), name=f"nsqfast: {name} handler {number}")
            for number in range(concurrency)
        ]

    async def wait(self) -> None:
        """Return when the inbox was stopped; raise if a worker ends before that."""
        stopped = self._inbox.wait_stopped()
        await asyncio.wait([stopped, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        if self._inbox.is_stopped:
            return
        stopped.cancel()
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error
        raise NsqfastError(
            f"{self._name}: a task that calls the handler was cancelled, by the handler itself or from elsewhere; "
            "to end run(), cancel the task that awaits it or call request_stop()"
        )

    async def stop(self) -> None:
        """Cancel workers that are still running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        async for message in self._inbox:
            try:
                result = self._handler(message)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                self._failures.note(message, error)
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                # It comes from a task that the handler waited for and somebody cancelled.
                self._failures.note(message, error)
            else:
                if not message.is_kept:
                    message.finish()
