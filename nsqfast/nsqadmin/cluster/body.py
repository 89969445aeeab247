"""The bytes of answers, counted from their first piece until nothing refers to them: a node decides what it sends."""

import weakref

import numpy as np

from nsqfast.net.http_client import BrokenError

SIZE_MAX = 64 << 20
TOGETHER_SIZE_MAX = 256 << 20  # of all answers that are read, or wait until they are decoded
# Three bytes may become 240 when they are decoded. When nothing but empty topics fills SIZE_MAX, there are 0.8 million
# objects and 3.5 million values; a /nodes with names of 16 characters has 5.4 million values.
OBJECTS_MAX = 1_000_000
VALUES_MAX = 6_000_000


class Budget:
    """Shared by all answers of one nsqadmin."""

    def __init__(self) -> None:
        self.size = 0
        # Those that are still read. A dict, because a body is equal to others and has no hash.
        self.reading: weakref.WeakValueDictionary[int, Body] = weakref.WeakValueDictionary()


class Body(bytearray):
    """One answer's; decoded from here, because a copy would not be counted.

    Its braces and commas are counted as they come: as many objects and values, at most, are decoded from it.

    When all of them are too large together, the largest one fails: it is most likely not an honest node's.
    """

    __slots__ = ("__weakref__", "_budget", "_is_dropped", "_objects", "_values")

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget
        self._is_dropped = False
        self._objects = self._values = 0
        budget.reading[id(self)] = self

    def add(self, piece: bytes) -> None:
        """BrokenError if it is too large."""
        budget = self._budget
        if len(self) + len(piece) > SIZE_MAX:
            raise BrokenError(f"the answer is larger than {SIZE_MAX >> 20} MiB")
        self._count(np.frombuffer(piece, np.uint8))
        while not self._is_dropped and budget.size + len(piece) > TOGETHER_SIZE_MAX:
            max(budget.reading.values(), key=len).drop()
        self._check()
        budget.size += len(piece)
        self += piece

    def _count(self, piece: np.ndarray) -> None:
        # Twice as fast as bytes.count where there are many, which a node decides.
        self._objects += int(np.count_nonzero(piece == ord("{")))
        self._values += int(np.count_nonzero(piece == ord(",")))
        if self._objects > OBJECTS_MAX:
            raise BrokenError(f"the answer has more than {OBJECTS_MAX:,} objects")
        if self._values > VALUES_MAX:
            raise BrokenError(f"the answer has more than {VALUES_MAX:,} values")

    def finish(self) -> "Body":
        """Nothing more comes; BrokenError if it was dropped."""
        self._check()
        self._budget.reading.pop(id(self), None)
        return self

    def drop(self) -> None:
        """Give the memory back; whoever reads it learns that with the next piece."""
        self._is_dropped = True
        self._budget.reading.pop(id(self), None)
        self._budget.size -= len(self)
        self.clear()

    def _check(self) -> None:
        if self._is_dropped:
            raise BrokenError(
                f"the answers of all nodes are larger than {TOGETHER_SIZE_MAX >> 20} MiB together, this one most"
            )

    def __del__(self) -> None:
        self._budget.size -= len(self)
