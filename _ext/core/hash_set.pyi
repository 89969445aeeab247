from typing import final

import numpy as np
from _typeshed import ReadableBuffer
from numpy.typing import NDArray

@final
class Seen:
    def __init__(self, memory_size: int) -> None: ...
    @property
    def duplicates(self) -> int: ...
    @property
    def forgotten(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def count_sure(self) -> int: ...
    @property
    def memory_size(self) -> int: ...
    def unmark_seen(
        self,
        data: ReadableBuffer | NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        chosen: NDArray[np.uint8],
        scope: bytes,
        stamps: NDArray[np.int64] | None = None,
    ) -> int: ...

def siphash_128(data: bytes, key: bytes) -> bytes: ...
