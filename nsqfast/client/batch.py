"""Messages as numpy arrays: for bulk consumers that want columns, not objects."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nsqfast._ext.columns import Taken
from nsqfast._ext.inbox import Intake

Rows = Sequence[int] | NDArray[np.int64]

ID_SIZE = 16


class ArrayBatch:
    """`count` messages; row i of each array belongs to message i, and its body is `bodies[offsets[i]:offsets[i + 1]]`.

    timestamps: int64, ns since 1970; attempts: uint16; ids: S16; offsets: int64, one more than there are messages;
    bodies: one block. The arrays are views of what was read, and cannot be written to.
    """

    def __init__(self, taken: Taken) -> None:
        self._identities = taken.identities
        self._links: list[Intake] = taken.links
        self._sources = np.frombuffer(taken.sources, np.uint16)
        self._is_answered = np.zeros(len(self._sources), np.bool_)
        self.bodies = taken.bodies
        self.offsets: NDArray[np.int64] = np.frombuffer(taken.offsets, np.int64)
        self.timestamps: NDArray[np.int64] = np.frombuffer(taken.timestamps, np.int64)
        self.attempts: NDArray[np.uint16] = np.frombuffer(taken.attempts, np.uint16)
        self.ids: NDArray[np.bytes_] = np.frombuffer(taken.identities, f"S{ID_SIZE}")

    def __len__(self) -> int:
        return len(self._sources)

    def body(self, row: int) -> bytes:
        """One body, copied."""
        return self.bodies[int(self.offsets[row]) : int(self.offsets[row + 1])]

    @property
    def is_answered(self) -> bool:
        """Whether every row is."""
        return bool(self._is_answered.all())

    def finish(self, rows: Rows | None = None) -> int:
        """FIN to those rows, or to all; returns how many were told (those answered before, or lost, are not)."""
        return sum(
            link.finish_rows(self._identities, chosen) for link, chosen in self._answer(rows)
        )

    def requeue(self, rows: Rows | None = None, *, delay_s: float = 0.0) -> int:
        """REQ likewise. Arrays know no backoff: who takes thousands at a time decides about pauses by itself."""
        delay_ms = max(0, round(delay_s * 1000))
        return sum(
            link.requeue_rows(self._identities, chosen, delay_ms)
            for link, chosen in self._answer(rows)
        )

    def touch(self) -> int:
        """TOUCH to all that is not answered."""
        rows = np.flatnonzero(~self._is_answered)
        return sum(link.touch_rows(self._identities, chosen) for link, chosen in self._split(rows))

    def _answer(self, rows: Rows | None) -> list[tuple[Intake, list[int]]]:
        if rows is None:
            chosen = np.flatnonzero(~self._is_answered)
        else:
            chosen = np.unique(np.asarray(rows, np.int64))
            if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < len(self):
                raise IndexError(f"rows are 0 to {len(self) - 1}")
            chosen = chosen[~self._is_answered[chosen]]
        self._is_answered[chosen] = True
        return self._split(chosen)

    def _split(self, rows: "NDArray[np.int64]") -> list[tuple[Intake, list[int]]]:
        if len(self._links) == 1:
            return [(self._links[0], rows.tolist())]
        sources = self._sources[rows]
        return [(link, rows[sources == i].tolist()) for i, link in enumerate(self._links)]
