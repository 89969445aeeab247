"""The handle of a message that was published with a delay. Loaded when it is used: few programs do."""

from dataclasses import dataclass, field
from typing import Protocol

CANCEL = b"CANCEL_DEFERRED"
RUN = b"RUN_DEFERRED"


class _Ender(Protocol):
    async def end_deferral(
        self, command: bytes, topic: str, nsqd: str, id: bytes | None
    ) -> int: ...


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that was published with a delay: its topic, the address of the nsqd that has it, and its id.

    The id is None if that nsqd tells none, as NSQ's own; then the methods raise UnsupportedError.
    """

    topic: str
    nsqd: str
    id: bytes | None
    _producer: _Ender = field(repr=False, compare=False)

    async def cancel(self) -> int:
        """Drop it where it is not due yet; return in how many channels that was, 0 = nowhere any more.

        Copies that are queued, in flight or finished stay what they are. ConnectError: there was no answer; ask again.
        """
        return await self._producer.end_deferral(CANCEL, self.topic, self.nsqd, self.id)

    async def run_now(self) -> int:
        """The same, but queue it there at once."""
        return await self._producer.end_deferral(RUN, self.topic, self.nsqd, self.id)
