"""Messages as numpy arrays, for bulk consumers that want columns instead of objects."""

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nsqfast._ext.client.columns import Taken
from nsqfast._ext.client.consume_connection import (
    NO_PLACE,
    ConsumeConnection,
    finish_rows,
    move_rows,
    reject_rows,
    requeue_rows,
    touch_rows,
)
from nsqfast.client.config import check_delay_s, check_reason
from nsqfast.client.deaths import Deaths, ask_deaths
from nsqfast.errors import OptionsError
from nsqfast.wire.protocol import MESSAGE_ID_SIZE

Rows = Sequence[int] | NDArray[np.int64]


class ArrayBatch:
    """`count` messages; row i of each array belongs to message i, and its body is `bodies[offsets[i]:offsets[i + 1]]`.

    timestamps: int64, ns since 1970; attempts: uint16; ids: S16; offsets: int64, one more than there are messages;
    bodies: one block; sources: uint16, the index in `nsqd` (a list of addresses) of the nsqd that delivered the
    message. The arrays are read-only views of the received data.
    """

    def __init__(
        self, taken: Taken, on_answered: "Callable[[ArrayBatch], object] | None" = None
    ) -> None:
        self.taken = taken  # the buffers themselves
        self._connections: list[ConsumeConnection] = taken.connections
        self._on_answered = on_answered
        self.bodies = taken.bodies
        self.offsets: NDArray[np.int64] = np.frombuffer(taken.offsets, np.int64)
        self.timestamps: NDArray[np.int64] = np.frombuffer(taken.timestamps, np.int64)
        self.attempts: NDArray[np.uint16] = np.frombuffer(taken.attempts, np.uint16)
        self.ids: NDArray[np.bytes_] = np.frombuffer(taken.identities, f"S{MESSAGE_ID_SIZE}")
        self.sources: NDArray[np.uint16] = np.frombuffer(taken.sources, np.uint16)
        self.nsqd = [connection.address for connection in self._connections]
        self._open = np.ones(len(self.sources), np.bool_)  # not answered yet
        self._open_count = len(self.sources)

    def __len__(self) -> int:
        return len(self.sources)

    def body(self, row: int) -> bytes:
        """A copy of one body."""
        return self.bodies[int(self.offsets[row]) : int(self.offsets[row + 1])]

    async def deaths(self) -> Deaths:
        """What is known of each message, if it is a dead letter. Ask before they are finished.

        None for any other message, for those of an nsqd that does not tell it, as Go's, and where the connection ends
        meanwhile, after which they come again.
        """
        ids = self.ids.tolist()
        rows = [np.flatnonzero(self.sources == source) for source in range(len(self.nsqd))]
        known = await asyncio.gather(
            *[
                ask_deaths(connection, [ids[row] for row in own.tolist()])
                for connection, own in zip(self._connections, rows, strict=True)
            ]
        )
        return [
            known[source].get(each.decode("ascii", "replace"))
            for each, source in zip(ids, self.sources.tolist(), strict=True)
        ]

    @property
    def is_answered(self) -> bool:
        """Whether all rows are answered."""
        return self._open_count == 0

    def finish(self, rows: Rows | None = None) -> int:
        """FIN these rows, or all; returns how many FINs were sent (rows already answered, or lost, do not count).

        During backoff they count as one success.
        """
        taken = self.taken
        return finish_rows(self._connections, taken.identities, taken.sources, self._answer(rows))

    @property
    def is_rejectable(self) -> bool:
        """Whether `reject` has a place for all rows."""
        return all(connection.has_place_for_rejected for connection in self._connections)

    def requeue(
        self,
        rows: Rows | None = None,
        *,
        delay_s: float | None = 0.0,
        backoff: bool = False,
        reason: str = "",
    ) -> int:
        """REQ these rows, or all, with this delay; None = default_requeue_delay × attempts, max_requeue_delay at most.

        With `backoff` each row counts as a failure, and the consumer may pause once. Without it, the caller decides
        about pauses. reason: why they failed, for nsqfast-nsqd, which keeps it. TypeError: the delay is no number of
        seconds, or the reason no text.
        """
        delay_ms = None if delay_s is None else max(0, round(check_delay_s(delay_s) * 1000))
        check_reason(reason)
        chosen = self._answer(rows)
        if delay_ms is not None:
            return self._requeue(chosen, delay_ms, backoff, reason)
        is_chosen = np.frombuffer(chosen, np.bool_)
        count = 0
        for attempts in np.unique(self.attempts[is_chosen]).tolist():
            same = is_chosen & (self.attempts == attempts)
            delay_ms = self._connections[0].requeue_delay_ms(attempts)
            count += self._requeue(same.tobytes(), delay_ms, backoff, reason)
        return count

    def _requeue(self, chosen: bytes, delay_ms: int, backoff: bool, reason: str) -> int:
        taken = self.taken
        return requeue_rows(
            self._connections, taken.identities, taken.sources, chosen, delay_ms, backoff, reason
        )

    def reject(self, rows: Rows | None = None, *, reason: str = "") -> int:
        """REJ these rows, or all, as `Message.reject` does: they are never delivered again; returns how many.

        OptionsError: there is no place for one of them. All stay unanswered then. TypeError: the reason is no text.
        """
        check_reason(reason)
        chosen = self._choose(rows)
        connections = [self._connections[source] for source in np.unique(self.sources[chosen])]
        if not all(connection.has_place_for_rejected for connection in connections):
            raise OptionsError(NO_PLACE)
        self._mark_answered(chosen)
        taken = self.taken
        is_offered = np.array([one.may_reject for one in self._connections], np.bool_)[self.sources]
        offered, others = (chosen & is_offered).tobytes(), (chosen & ~is_offered).tobytes()
        moved = move_rows(taken, others, reason)
        return moved + reject_rows(
            self._connections, taken.identities, taken.sources, offered, reason
        )

    def touch(self) -> int:
        """TOUCH all unanswered rows."""
        taken = self.taken
        return touch_rows(self._connections, taken.identities, taken.sources, self._open.tobytes())

    def _answer(self, rows: Rows | None) -> bytes:
        """One byte for each row: 1 if it is to be answered now. These rows count as answered from here on."""
        chosen = self._choose(rows)
        self._mark_answered(chosen)
        return chosen.tobytes()

    def _choose(self, rows: Rows | None) -> NDArray[np.bool_]:
        """Whether each row is one of these, or of all, and unanswered."""
        if rows is None:
            return self._open.copy()
        numbers = np.asarray(rows, np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(f"rows are 0 to {len(self) - 1}")
        chosen = np.zeros(len(self), np.bool_)
        chosen[numbers] = True
        chosen &= self._open
        return chosen

    def _mark_answered(self, chosen: NDArray[np.bool_]) -> None:
        """These rows count as answered from here on."""
        self._open &= ~chosen
        self._open_count = int(np.count_nonzero(self._open))
        if self._open_count == 0 and self._on_answered is not None:
            on_answered, self._on_answered = self._on_answered, None
            on_answered(self)
