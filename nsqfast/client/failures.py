"""Messages whose handling failed: requeued, and given up when they have used up their attempts.

The attempts of a message may be spread over several consumers; what is known of an error is what this one saw.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol

from nsqfast._ext.client.consume_connection import Message
from nsqfast.client.callbacks import call
from nsqfast.client.config import Config, seconds
from nsqfast.client.lifetime import Logger
from nsqfast.client.producer import Producer
from nsqfast.errors import NsqfastError, OptionsError
from nsqfast.wire.names import check_name

ERRORS_KEPT_MAX = 1000
ERROR_LENGTH_MAX = 200
UNKNOWN = "no error of it was seen here"

GivingUp = Callable[[Message], Awaitable[object] | object]


class Failed(Protocol):
    """A message, of asyncio or of a program's threads."""

    @property
    def id(self) -> bytes: ...
    @property
    def nsqd(self) -> str: ...
    @property
    def attempts(self) -> int: ...
    @property
    def is_answered(self) -> bool: ...
    def requeue(self, delay_s: float | None = None, *, backoff: bool = True) -> object: ...


class Failures:
    """Those of one consumer; `note` can be called from any thread."""

    def __init__(
        self,
        topic: str,
        name: str,
        config: Config,
        log: Logger,
        giving_up: GivingUp | None,
        dead_letter_topic: str | None,
    ) -> None:
        self.given_up = 0
        self._name = name
        self._config = config
        self._log = log
        self._giving_up = giving_up
        self._dead_letter_topic = dead_letter_topic
        self._producers: dict[str, asyncio.Task[Producer]] = {}  # by the address of an nsqd
        self._closing: set[asyncio.Task[None]] = set()
        self._errors: dict[tuple[str, bytes], str] = {}  # the last one of each message
        self._lock = threading.Lock()
        if dead_letter_topic is not None:
            self._check(topic, dead_letter_topic)

    def _check(self, topic: str, dead_letter_topic: str) -> None:
        check_name("topic", dead_letter_topic)
        if dead_letter_topic == topic:
            raise OptionsError(f"dead_letter_topic is {topic!r}, where the messages come from")
        if self._giving_up is not None:
            raise OptionsError("giving_up or dead_letter_topic: give one of them")
        if self._config.max_attempts == 0:
            raise OptionsError("dead_letter_topic needs max_attempts; 0 gives up no message")

    def note(self, message: Failed, error: BaseException) -> None:
        """Log that the handler failed, and requeue the message unless it is answered."""
        with self._lock:
            if len(self._errors) >= ERRORS_KEPT_MAX:
                del self._errors[next(iter(self._errors))]
            self._errors[message.nsqd, message.id] = _in_one_line(error)
        limit = self._config.max_attempts
        self._log.warning(
            "%s: the handler failed: %s at attempt %d%s%s",
            self._name,
            _identity(message),
            message.attempts,
            f" of {limit}" if limit else "",
            self._what_follows(message),
            exc_info=error,
        )
        if not message.is_answered:
            message.requeue()

    def _what_follows(self, message: Failed) -> str:
        if message.is_answered:
            return ", after its answer"
        delay_s = min(
            seconds(self._config.default_requeue_delay) * message.attempts,
            seconds(self._config.max_requeue_delay),
        )
        is_last = 0 < self._config.max_attempts <= message.attempts
        return f"; it comes again in {delay_s:g} s{', to be given up' if is_last else ''}"

    async def give_up(self, message: Message) -> None:
        """Finish a message that has used up its attempts; if the place for such messages fails, requeue it."""
        self.given_up += 1
        with self._lock:
            error = self._errors.pop((message.nsqd, message.id), UNKNOWN)
        tries = message.attempts - 1
        times = f"{tries} attempt{'' if tries == 1 else 's'}"
        what = f"{_identity(message)} after {times}; the last error: {error}"
        try:
            if self._dead_letter_topic is not None:
                await self._publish(message, self._dead_letter_topic)
                what = f"moved to {self._dead_letter_topic}: {what}"
            elif self._giving_up is not None:
                await call(self._giving_up, message)
                what = f"given to giving_up: {what}"
            else:
                what = f"dropped: {what} (dead_letter_topic= or giving_up= keeps such messages)"
        except Exception:
            self._log.exception("%s: requeued, for giving up failed: %s", self._name, what)
            message.requeue()
        else:
            message.discard()
            self._log.warning("%s: %s", self._name, what)

    async def _publish(self, message: Message, topic: str) -> None:
        """Publish the body to the nsqd that it came from, over a connection of its own: nsqd ends one whose publish it
        refuses.
        """
        opening = self._producers.get(message.nsqd)
        if opening is None or (opening.done() and opening.exception()):
            opening = asyncio.create_task(self._open(message.nsqd))
            self._producers[message.nsqd] = opening
        producer = await asyncio.shield(opening)
        await producer.publish(topic, message.body)

    async def _open(self, address: str) -> Producer:
        producer = Producer(address, config=self._config, logger=self._log)
        await producer.start()
        return producer

    def forget(self, address: str) -> None:
        """Disconnect from this nsqd, which may be gone for good."""
        if opening := self._producers.pop(address, None):
            closing = asyncio.create_task(_close(opening))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Disconnect from all."""
        for address in list(self._producers):
            self.forget(address)
        await asyncio.gather(*self._closing)


async def _close(opening: "asyncio.Task[Producer]") -> None:
    with contextlib.suppress(NsqfastError):  # it never began
        await (await opening).close()


def _identity(message: Failed) -> str:
    return message.id.decode("ascii", "backslashreplace")


def _in_one_line(error: BaseException) -> str:
    from nsqfast.program.logs import escape_controls  # late: few programs have failures

    return escape_controls(" ".join(repr(error).split()))[:ERROR_LENGTH_MAX]
