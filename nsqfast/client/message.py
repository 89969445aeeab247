"""Messages handed out by a consumer: single ones (compiled, `nsqfast._ext.client.consume_connection`) and lists."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from nsqfast._ext.client.consume_connection import NO_PLACE, Message
from nsqfast.errors import OptionsError
from nsqfast.program.extras import needs

if TYPE_CHECKING:
    from nsqfast.client.batch import ArrayBatch

__all__ = ["Batch", "Message", "MessageList", "load_array_batch"]


M = TypeVar("M")


class MessageList(Generic[M]):
    """Messages that arrived together."""

    __slots__ = ("messages",)

    def __init__(self, messages: list[M]) -> None:
        self.messages = messages

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[M]:
        return iter(self.messages)


class Batch(MessageList[Message]):
    """Messages to answer together or one by one."""

    __slots__ = ()

    def finish(self) -> int:
        """FIN all unanswered messages; returns how many FINs were sent."""
        return sum([message.finish() for message in self.messages])

    @property
    def is_rejectable(self) -> bool:
        """Whether `reject` has a place for all of them."""
        return all(message.is_rejectable for message in self.messages)

    def requeue(
        self, delay_s: float | None = None, *, backoff: bool = True, reason: str = ""
    ) -> int:
        """REQ all unanswered messages; the consumer pauses for all of them once, if it does. reason: why."""
        return sum(
            [message.requeue(delay_s, backoff=backoff, reason=reason) for message in self.messages]
        )

    def reject(self, reason: str = "") -> int:
        """REJ all unanswered messages, as `Message.reject` does; returns how many.

        OptionsError: there is no place for one of them. All stay unanswered then.
        """
        if not self.is_rejectable:
            raise OptionsError(NO_PLACE)
        return sum([message.reject(reason) for message in self.messages])

    def touch(self) -> int:
        """TOUCH all unanswered messages."""
        return sum([message.touch() for message in self.messages])


def load_array_batch(part: str) -> "type[ArrayBatch]":
    """Numpy takes a moment, and is an extra; PackageMissingError, which names `part`, where it is not installed."""
    with needs(part, "arrays"):
        from nsqfast.client.batch import ArrayBatch
    return ArrayBatch
