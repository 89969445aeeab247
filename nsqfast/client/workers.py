"""Handlers of messages: this many tasks, each with one message at a time, until the inbox ends."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from nsqfast._ext.client.consume_connection import Message, MessageQueue
from nsqfast.client.callbacks import call, is_cancelled
from nsqfast.client.lifetime import Logger
from nsqfast.errors import NsqfastError, OptionsError

Handler = Callable[[Message], Awaitable[object] | object]


def check_handler(handler: object, concurrency: object) -> None:
    """Raise OptionsError if the arguments of `run` are invalid."""
    if not callable(handler):
        raise OptionsError(f"a handler is a function that takes a message, not {handler!r}")
    try:
        # Not of what a decorator wraps: it may give more arguments.
        inspect.signature(handler, follow_wrapped=False).bind(None)
    except TypeError as error:
        raise OptionsError(
            f"a handler is called with a message, and {handler!r}: {error}"
        ) from None
    except ValueError:  # some of C do not tell
        pass
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        raise OptionsError(f"concurrency is {concurrency!r}; it is a whole number of at least 1")


class Workers:
    """Work begins at construction."""

    def __init__(
        self,
        handler: Handler,
        concurrency: int,
        inbox: MessageQueue,
        log: Logger,
        name: str,
    ) -> None:
        self._handler = handler
        self._inbox = inbox
        self._log = log
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
            except Exception:
                self._fail(message)
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                self._fail(message)
            else:
                if not message.is_kept:
                    message.finish()

    def _fail(self, message: Message) -> None:
        """The handler raised an exception; it may come from a task that it waited for and somebody cancelled."""
        self._log.warning("%s: the handler failed", self._name, exc_info=True)
        message.requeue()


async def give_up(message: Message, giving_up: Handler | None, log: Logger, name: str) -> None:
    """Finish a message that has used up its attempts, unless `giving_up` fails."""
    identity = message.id.decode("ascii", "backslashreplace")
    log.warning("%s: giving up %s after %d attempts", name, identity, message.attempts - 1)
    try:
        if giving_up is not None:
            await call(giving_up, message)
    except Exception:
        log.exception("%s: giving up %s failed, it is requeued", name, identity)
        message.requeue()
    else:
        message.discard()
