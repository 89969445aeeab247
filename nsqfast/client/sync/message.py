"""Messages as program threads get them; their answers are sent from the loop's thread."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from nsqfast._ext.client import consume_connection as inbox
from nsqfast.client.config import check_delay_s, check_reason
from nsqfast.client.delayed import CANCEL, RUN
from nsqfast.client.message import MessageList
from nsqfast.client.sync.loop_thread import LoopThread, run_on_loop
from nsqfast.errors import OptionsError

if TYPE_CHECKING:
    import nsqfast.client.batch as batch_module
    from nsqfast.client.deaths import Deaths


class Poster(Protocol):
    """What a message needs of a loop's thread."""

    def post(self, action: Callable[..., object], *arguments: Any) -> None: ...


class Message:
    """See nsqfast.client.Message. Answers are sent from the loop's thread: these methods return whether they could be
    sent at the moment of the call.

    After the end of its consumer, which hands the message back, answers have no effect.
    """

    __slots__ = ("_loop_thread", "_message", "is_answered", "is_kept")

    def __init__(self, message: inbox.Message, loop_thread: Poster) -> None:
        self._message = message
        self._loop_thread = loop_thread
        self.is_answered = False
        self.is_kept = False

    def __repr__(self) -> str:
        return repr(self._message)

    @property
    def body(self) -> bytes:
        return self._message.body

    @property
    def id(self) -> bytes:
        return self._message.id

    @property
    def attempts(self) -> int:
        return self._message.attempts

    @property
    def timestamp_ns(self) -> int:
        return self._message.timestamp_ns

    @property
    def nsqd(self) -> str:
        return self._message.nsqd

    def finish(self) -> bool:
        """FIN: the message is done."""
        return self._answer(self._message.finish)

    @property
    def is_rejectable(self) -> bool:
        return self._message.is_rejectable

    def requeue(
        self, delay_s: float | None = None, *, backoff: bool = True, reason: str = ""
    ) -> bool:
        """REQ: deliver it again after this delay; None = default_requeue_delay × attempts. reason: why it failed."""
        check_reason(reason)  # raises here, not on the loop
        delay_s = (
            None if delay_s is None else check_delay_s(delay_s)
        )  # raises here, not on the loop
        message = self._message
        return self._answer(lambda: message.requeue(delay_s, backoff=backoff, reason=reason))

    def reject(self, reason: str = "") -> bool:
        """REJ: it is never delivered again, and goes to the dead letters at once; OptionsError: there is no place."""
        check_reason(reason)
        if not self._message.is_rejectable:
            raise OptionsError(inbox.NO_PLACE)
        message = self._message
        return self._answer(lambda: message.reject(reason))

    def _answer(self, send: Callable[[], object]) -> bool:
        is_sent = self._message.is_answerable and not self.is_answered
        self.is_answered = True
        self._loop_thread.post(send)
        return is_sent

    def touch(self) -> bool:
        """TOUCH: restart its time in flight."""
        self._loop_thread.post(self._message.touch)
        return self._message.is_answerable and not self.is_answered

    def keep(self) -> None:
        """Do not take the handler's return as the answer; somebody else answers later."""
        self.is_kept = True


class Batch(MessageList[Message]):
    """Messages that arrived together, to answer together or one by one."""

    __slots__ = ()

    def finish(self) -> None:
        """FIN all unanswered messages."""
        for message in self.messages:
            if not message.is_answered:
                message.finish()

    @property
    def is_rejectable(self) -> bool:
        return all(message.is_rejectable for message in self.messages)

    def requeue(
        self, delay_s: float | None = None, *, backoff: bool = True, reason: str = ""
    ) -> None:
        """REQ all unanswered messages; the consumer pauses for all of them once, if it does. reason: why."""
        for message in self.messages:
            if not message.is_answered:
                message.requeue(delay_s, backoff=backoff, reason=reason)

    def reject(self, reason: str = "") -> None:
        """REJ all unanswered messages; OptionsError: there is no place for one of them, and all stay unanswered."""
        if not self.is_rejectable:
            raise OptionsError(inbox.NO_PLACE)
        for message in self.messages:
            if not message.is_answered:
                message.reject(reason)

    def touch(self) -> None:
        """TOUCH all unanswered messages."""
        for message in self.messages:
            if not message.is_answered:
                message.touch()


class ArrayBatch:
    """See nsqfast.client.batch.ArrayBatch."""

    def __init__(self, batch: "batch_module.ArrayBatch", loop_thread: LoopThread) -> None:
        self._batch = batch
        self._loop_thread = loop_thread
        self.bodies = batch.bodies
        self.offsets = batch.offsets
        self.timestamps = batch.timestamps
        self.attempts = batch.attempts
        self.ids = batch.ids
        self.sources = batch.sources
        self.nsqd = batch.nsqd
        self.body = batch.body

    def __len__(self) -> int:
        return len(self._batch)

    def deaths(self) -> "Deaths":
        """What is known of each message, if it is a dead letter; see nsqfast.client.batch.ArrayBatch."""
        return self._loop_thread.call(self._batch.deaths())

    def finish(self, rows: "batch_module.Rows | None" = None) -> int:
        """FIN these rows, or all unanswered ones; returns how many FINs were sent."""
        return self._loop_thread.call(run_on_loop(lambda: self._batch.finish(rows)))

    @property
    def is_rejectable(self) -> bool:
        return self._batch.is_rejectable

    def requeue(
        self, rows: "batch_module.Rows | None" = None, *, delay_s: float = 0.0, reason: str = ""
    ) -> int:
        """REQ these rows, or all unanswered ones. reason: why they failed."""
        return self._loop_thread.call(
            run_on_loop(lambda: self._batch.requeue(rows, delay_s=delay_s, reason=reason))
        )

    def reject(self, rows: "batch_module.Rows | None" = None, *, reason: str = "") -> int:
        """REJ these rows, or all unanswered ones; OptionsError: there is no place for one of them."""
        return self._loop_thread.call(run_on_loop(lambda: self._batch.reject(rows, reason=reason)))

    def touch(self) -> int:
        """TOUCH all unanswered rows."""
        return self._loop_thread.call(run_on_loop(self._batch.touch))


class _Ender(Protocol):
    def end_deferral(self, command: bytes, topic: str, nsqd: str, id: bytes | None) -> int: ...


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """See nsqfast.client.DelayedMessage."""

    topic: str
    nsqd: str
    id: bytes | None
    _producer: _Ender = field(repr=False, compare=False)

    def cancel(self) -> int:
        """Drop it where it is not due yet; return in how many channels that was, 0 = nowhere any more."""
        return self._producer.end_deferral(CANCEL, self.topic, self.nsqd, self.id)

    def run_now(self) -> int:
        """The same, but queue it there at once."""
        return self._producer.end_deferral(RUN, self.topic, self.nsqd, self.id)
