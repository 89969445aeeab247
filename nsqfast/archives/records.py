"""Messages of an archive, many at once: arrays and one block of bytes.

data        ....|body|..|body|body|....
                ^starts ^ends
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
NO_TIME = -(1 << 63)  # the timestamp of a record without one


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that was left out."""

    path: str
    place: str  # "byte 4711", "row 12"
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.place}: {self.reason}"


OnDamage = Callable[[Damage], None]


@dataclass(frozen=True, slots=True)
class Column:
    """Strings in one block: each from its `starts` to its `ends`."""

    data: Any  # anything with the buffer protocol
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> Ints:
        """In bytes."""
        return self.ends - self.starts

    def __getitem__(self, index: int) -> bytes:
        return bytes(memoryview(self.data)[self.starts[index] : self.ends[index]])


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive messages of one file."""

    bodies: Column
    positions: Ints  # of each record in its file: the byte of the plain text, or the row
    end: int  # the position at which reading continues after them
    unit: str  # of positions: "byte" or "row"
    topics: list[str] | None = None  # None: the records have no topics
    topic_numbers: NDArray[np.int32] | None = (
        None  # each record's index in `topics`; None: there is only one topic
    )
    timestamps_ns: Ints | None = None
    ids: Column | None = None  # an empty one means none
    # Only if all columns were requested.
    attempts: NDArray[np.int32] | None = None  # 0: unknown
    nsqd: Column | None = None  # an empty one means none

    def __len__(self) -> int:
        return len(self.positions)

    def place(self, index: int) -> str:
        """The place of a record, for people."""
        return f"{self.unit} {self.positions[index]}"


def join_texts(texts: list[bytes]) -> Column:
    """Join strings into a column."""
    ends = np.fromiter(map(len, texts), np.int64, len(texts)).cumsum()
    starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
    return Column(b"".join(texts), starts, ends)
