"""The handle of a message that was published with a delay, for program threads. Loaded when it is used."""

from dataclasses import dataclass, field
from typing import Protocol

from nsqfast.client.delayed_message import CANCEL, RUN


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
