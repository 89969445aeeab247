"""A function that handles a channel, and what it is called with.

The first parameter is the message, or the body as the type that was given. Each further one is called by its name:
`message`, `headers`, or a resource that the lifespan yields.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from nsqfast.app.worker import Threads
from nsqfast.client.backoff import BackoffRule
from nsqfast.client.callbacks import is_coroutine_function
from nsqfast.client.config import Config
from nsqfast.client.envelope import split_headers
from nsqfast.client.failures import GivingUp, OnFailure
from nsqfast.client.lifetime import Logger
from nsqfast.client.message import Message
from nsqfast.client.middleware import Middleware
from nsqfast.client.nodes import ChooseNodes
from nsqfast.client.payload import Decoder, decode_body
from nsqfast.client.sync.message import Message as ThreadMessage
from nsqfast.errors import OptionsError

MESSAGE, HEADERS = "message", "headers"
OWN = (MESSAGE, HEADERS)


class ConsumerOptions(TypedDict, total=False):
    """The keywords of a Consumer, for type checkers."""

    nsqd: str | Sequence[str]
    nsqlookupd: str | Sequence[str]
    config: Config | None
    auto_touch: bool
    giving_up: GivingUp | None
    dead_letter_topic: str | None
    on_failure: OnFailure | None
    backoff: BackoffRule
    choose_nodes: ChooseNodes
    decoder: Decoder[Any] | None
    middleware: Sequence[Middleware]
    logger: Logger | None


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a decorator has noted; `options` are those of its Consumer."""

    topic: str
    channel: str
    function: Callable[..., Any]
    decoder: Decoder[Any] | None
    concurrency: int
    grace_s: float
    options: ConsumerOptions

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.channel}"

    def check(self) -> None:
        """OptionsError: the function cannot be called with one value."""
        if not callable(self.function):
            raise OptionsError(f"{self.name}: a handler is a function, not {self.function!r}")
        parameters = self._parameters()
        if not parameters or parameters[0].kind in {
            inspect.Parameter.KEYWORD_ONLY,
            inspect.Parameter.VAR_KEYWORD,
        }:
            raise OptionsError(f"{self._who()} takes no message: its first parameter is for that")

    def name_resources(self, resources: Mapping[str, object]) -> list[str]:
        """Those that the function is called with; OptionsError: there is none of that name."""
        known = {*resources, *OWN}
        found = []
        for each in self._parameters()[1:]:
            if each.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
                continue
            if each.kind is inspect.Parameter.POSITIONAL_ONLY or (
                each.name not in known and each.default is inspect.Parameter.empty
            ):
                raise OptionsError(
                    f"{self._who()} wants {each.name!r}, and there is no resource of that name: "
                    f"there are {', '.join(sorted(known))}; the lifespan yields them"
                )
            if each.name in known:
                found.append(each.name)
        return found

    def _parameters(self) -> list[inspect.Parameter]:
        # Not of what a decorator wraps: it may give more arguments.
        signature = inspect.signature(self.function, follow_wrapped=False)
        return list(signature.parameters.values())

    def _who(self) -> str:
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"{name}, the handler of {self.name},"


class Call:
    """One subscription's handler for `Consumer.run`, from the start of an app to `stop`."""

    def __init__(
        self, subscription: Subscription, resources: Mapping[str, object], *, has_envelope: bool
    ) -> None:
        names = subscription.name_resources(resources)
        self._function = subscription.function
        self._decoder = subscription.decoder
        self._resources = {name: resources[name] for name in names if name not in OWN}
        self._wants_message, self._wants_headers = MESSAGE in names, HEADERS in names
        self._has_envelope = has_envelope
        self._threads: Threads | None = None
        self._poster = Poster()
        if not is_coroutine_function(subscription.function):
            self._threads = Threads(subscription.concurrency, subscription.name)

    async def __call__(self, message: Message) -> None:
        """Decode, and call the function: a coroutine function on the loop, another one in a thread."""
        shown: Message | ThreadMessage = message
        if self._threads is not None:
            shown = ThreadMessage(message, self._poster)
        headers, body = split_headers(message.body) if self._has_envelope else ({}, message.body)
        value = shown if self._decoder is None else decode_body(self._decoder, body)
        named = dict(self._resources)
        if self._wants_message:
            named[MESSAGE] = shown
        if self._wants_headers:
            named[HEADERS] = headers
        if self._threads is None:
            await self._function(value, **named)
            return
        result = await self._threads.call(lambda: self._function(value, **named))
        if shown.is_kept:
            message.keep()
        if inspect.isawaitable(result):
            await result

    def stop(self) -> None:
        if self._threads is not None:
            self._threads.stop()


class Poster:
    """Has the answers of messages given on the loop on which it was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def post(self, action: Callable[..., object], *arguments: Any) -> None:
        """Run it on the loop soon, in order. No effect after the end of the loop."""
        try:
            self._loop.call_soon_threadsafe(action, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
