"""Code around each publish and each call of a handler: for tracing, metrics, signatures, compression.

    class Timed(Middleware):
        @contextmanager
        def handle(self, topic, channel, message):
            began_s = time.monotonic()
            yield
            print(topic, channel, message.id, time.monotonic() - began_s)

    Consumer("topic", "channel", nsqd="127.0.0.1:4150", middleware=[Timed()])

The first of several is the outermost. If one raises, the publish, or the handling of the message, fails.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Protocol


class Sender(Protocol):
    """How a producer sends a publish; the last argument says that nobody waits for it.

    Bodies may be other things than bytes before an encoder has made these.
    """

    def send(self, topic: str, body: Any, is_piped: bool, /) -> "asyncio.Future[None]": ...
    def send_many(
        self, topic: str, bodies: list[Any], is_piped: bool, /
    ) -> "asyncio.Future[None]": ...
    def send_later(
        self, topic: str, body: Any, delay_ms: int, is_piped: bool, /
    ) -> "asyncio.Future[None]": ...


class Middleware:
    """Override the methods you need; each returns a context manager (see contextlib.contextmanager)."""

    def publish(
        self, topic: str, bodies: Sequence[bytes]
    ) -> AbstractContextManager[Sequence[bytes]]:
        """Wrap a publish: entered before it, left when nsqd has answered, with the exception if it failed.

        Yield the bodies to send, as many as were given: one, or those of an MPUB. For a `send`, which does not wait,
        the context is left as soon as the message is on its way.
        """
        del topic
        return nullcontext(bodies)

    def handle(self, topic: str, channel: str, message: Any) -> AbstractContextManager[object]:
        """Wrap a call of a handler by `run`; left with the exception if the handler failed."""
        del topic, channel, message
        return nullcontext()


@contextmanager
def around_publish(
    middleware: Sequence[Middleware], topic: str, bodies: Sequence[Any]
) -> Generator[list[bytes]]:
    """Enter all of them; yields the bodies to send."""
    with ExitStack() as stack:
        count = len(bodies)
        for one in middleware:
            bodies = stack.enter_context(one.publish(topic, bodies))
        if len(bodies) != count:
            raise ValueError(f"a middleware made {len(bodies)} messages of {count}")
        yield list(bodies)


def around_handler(
    middleware: Sequence[Middleware],
    topic: str,
    channel: str,
    handler: Callable[[Any], Awaitable[object] | object],
) -> Callable[[Any], Awaitable[object] | object]:
    """Wrap a handler for `run` in all of them."""
    if not middleware:
        return handler

    async def handle(message: Any) -> None:
        with around_handling(middleware, topic, channel, message):
            result = handler(message)
            if inspect.isawaitable(result):
                await result

    return handle


@contextmanager
def around_handling(
    middleware: Sequence[Middleware], topic: str, channel: str, message: Any
) -> Generator[None]:
    """Enter all of them around the handling of this message."""
    with ExitStack() as stack:
        for one in middleware:
            stack.enter_context(one.handle(topic, channel, message))
        yield


class AroundSender:
    """A Sender wrapped in all of them."""

    def __init__(self, middleware: Sequence[Middleware], sender: Sender) -> None:
        self._middleware = middleware
        self._sender = sender

    def send(self, topic: str, body: bytes, is_piped: bool) -> "asyncio.Future[None]":
        """PUB."""
        return self._publish(
            topic, [body], is_piped, lambda bodies: self._sender.send(topic, bodies[0], is_piped)
        )

    def send_many(self, topic: str, bodies: list[bytes], is_piped: bool) -> "asyncio.Future[None]":
        """MPUB."""
        return self._publish(
            topic, bodies, is_piped, lambda bodies: self._sender.send_many(topic, bodies, is_piped)
        )

    def send_later(
        self, topic: str, body: bytes, delay_ms: int, is_piped: bool
    ) -> "asyncio.Future[None]":
        """DPUB."""
        return self._publish(
            topic,
            [body],
            is_piped,
            lambda bodies: self._sender.send_later(topic, bodies[0], delay_ms, is_piped),
        )

    def _publish(
        self,
        topic: str,
        bodies: list[bytes],
        is_piped: bool,
        send: Callable[[list[bytes]], "asyncio.Future[None]"],
    ) -> "asyncio.Future[None]":
        if is_piped:
            with around_publish(self._middleware, topic, bodies) as changed:
                return send(changed)

        async def wait() -> None:
            with around_publish(self._middleware, topic, bodies) as changed:
                await send(changed)

        return asyncio.ensure_future(wait())
