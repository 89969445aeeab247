"""Messages whose handling failed: requeued, given up when they have used up their attempts, or rejected.

The attempts of a message may be spread over several consumers; what is known of an error is what this one saw.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from nsqfast._ext.client.consume_connection import Message
from nsqfast.client.callbacks import call, find_call_fault, is_coroutine_function
from nsqfast.client.config import Config, seconds
from nsqfast.client.lifetime import Logger
from nsqfast.client.producer import Producer
from nsqfast.errors import NsqfastError, OptionsError
from nsqfast.wire.names import check_name

ERRORS_KEPT_MAX = 1000
ERROR_LENGTH_MAX = 200
UNKNOWN = "no error of it was seen here"

GivingUp = Callable[[Message], Awaitable[object] | object]
OnFailure = Callable[[Any, BaseException], str | None]


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
    def requeue(
        self, delay_s: float | None = None, *, backoff: bool = True, reason: str = ""
    ) -> object: ...


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
        on_failure: OnFailure | None,
    ) -> None:
        self.given_up = 0
        self.moved = 0  # rejected ones, to dead_letter_topic
        self._name = name
        self._config = config
        self._log = log
        self._giving_up = giving_up
        self._dead_letter_topic = dead_letter_topic
        self._on_failure = on_failure
        self._limits: dict[str, int] = {}  # of attempts, by the address of an nsqd
        self._working: set[asyncio.Task[None]] = set()
        self._producers: dict[str, asyncio.Task[Producer]] = {}  # by the address of an nsqd
        self._closing: set[asyncio.Task[None]] = set()
        self._errors: dict[tuple[str, bytes], str] = {}  # the last one of each message
        self._lock = threading.Lock()
        if dead_letter_topic is not None:
            self._check(topic, dead_letter_topic)
        if on_failure is not None:
            _check_on_failure(on_failure)

    def _check(self, topic: str, dead_letter_topic: str) -> None:
        check_name("topic", dead_letter_topic)
        if dead_letter_topic == topic:
            raise OptionsError(f"dead_letter_topic is {topic!r}, where the messages come from")
        if self._giving_up is not None:
            raise OptionsError("giving_up or dead_letter_topic: give one of them")
        if self._config.max_attempts == 0:
            raise OptionsError("dead_letter_topic needs max_attempts; 0 gives up no message")

    @property
    def has_dead_letter_topic(self) -> bool:
        """Whether there is a place for what is rejected, if nsqd offers none."""
        return self._dead_letter_topic is not None

    def attempts_max(self, nsqd: str, *, may_reject: bool) -> int:
        """After how many attempts messages of this nsqd are given up here; 0 = nsqd decides, or nobody."""
        is_asked_for = (
            self._config.is_max_attempts_given
            or self._giving_up is not None
            or self._dead_letter_topic is not None
        )
        limit = int(self._config.max_attempts) if is_asked_for or not may_reject else 0
        self._limits[nsqd] = limit
        return limit

    def note(self, message: Failed, error: BaseException) -> None:
        """Log that the handler failed, and requeue the message unless it is answered."""
        with self._lock:
            if len(self._errors) >= ERRORS_KEPT_MAX:
                del self._errors[next(iter(self._errors))]
            self._errors[message.nsqd, message.id] = _in_one_line(repr(error))
        limit = self._limit_of(message)
        self._log.warning(
            "%s: the handler failed: %s at attempt %d%s%s",
            self._name,
            _identity(message),
            message.attempts,
            f" of {limit}" if limit else "",
            self._what_follows(message, limit),
            exc_info=error,
        )
        if not message.is_answered:
            message.requeue(reason=self._reason(message, error))

    def _limit_of(self, message: Failed) -> int:
        return self._limits.get(message.nsqd, int(self._config.max_attempts))

    def _reason(self, message: Failed, error: BaseException) -> str:
        if self._on_failure is None:
            return _describe(error)
        try:
            reason: object = self._on_failure(message, error)
        except Exception:
            self._log.exception("%s: on_failure failed: %s", self._name, _identity(message))
            reason = None
        if isinstance(reason, str):
            return reason
        if reason is not None:
            self._log.error(
                "%s: on_failure returned %.80r, no text: %s", self._name, reason, _identity(message)
            )
        return _describe(error)

    def _what_follows(self, message: Failed, limit: int) -> str:
        if message.is_answered:
            return ", after its answer"
        delay_s = min(
            seconds(self._config.default_requeue_delay) * message.attempts,
            seconds(self._config.max_requeue_delay),
        )
        is_last = 0 < limit <= message.attempts
        what = f"; it comes again in {delay_s:g} s"
        if limit == 0 < self._config.max_attempts:
            return f"{what}, unless a policy of nsqd says otherwise"
        return f"{what}, to be given up" if is_last else what

    def begin_to_give_up(self, message: Message) -> None:
        """Have this done: the message has used up its attempts."""
        self._begin(self._give_up(message))

    def begin_to_move(self, message: Message, reason: str) -> None:
        """Have this done: the message was rejected, which its nsqd does not offer."""
        self._begin(self._move(message, reason))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _give_up(self, message: Message) -> None:
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

    async def _move(self, message: Message, reason: str) -> None:
        """Publish and finish a rejected message; requeue it if its place takes nothing."""
        topic = self._dead_letter_topic
        assert topic is not None
        what = f"{_identity(message)}, rejected: {_in_one_line(reason)}"
        try:
            await self._publish(message, topic)
        except Exception:
            self._log.exception("%s: requeued, for moving it failed: %s", self._name, what)
            message.requeue()
        else:
            self.moved += 1
            message.discard()
            self._log.warning("%s: moved to %s: %s", self._name, topic, what)

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
        self._limits.pop(address, None)
        if opening := self._producers.pop(address, None):
            closing = asyncio.create_task(_close(opening))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def cancel(self) -> None:
        """Leave messages unanswered that are on their way to their place."""
        for task in self._working:
            task.cancel()

    async def close(self) -> None:
        """Disconnect from all."""
        self.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        for address in list(self._producers):
            self.forget(address)
        await asyncio.gather(*self._closing)


async def _close(opening: "asyncio.Task[Producer]") -> None:
    with contextlib.suppress(NsqfastError):  # it never began
        await (await opening).close()


def _identity(message: Failed) -> str:
    return message.id.decode("ascii", "backslashreplace")


def _check_on_failure(on_failure: OnFailure) -> None:
    if not callable(on_failure) or is_coroutine_function(on_failure):
        raise OptionsError(
            f"on_failure is a plain function of a message and an exception, not {on_failure!r:.80}"
        )
    if fault := find_call_fault(on_failure, 2):
        raise OptionsError(
            f"on_failure is called with a message and an exception, and {on_failure!r}: {fault}"
        )


def _describe(error: BaseException) -> str:
    """Return "ValueError: no such user 17"; the class alone if it has no text, or one that cannot be made."""
    name = type(error).__name__
    try:
        text = str(error).strip()
    except Exception:
        text = ""
    return f"{name}: {text}" if text else name


def _in_one_line(text: str) -> str:
    from nsqfast.program.logs import escape_controls  # late: few programs have failures

    return escape_controls(" ".join(text.split()))[:ERROR_LENGTH_MAX]
