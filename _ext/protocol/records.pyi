from typing import NamedTuple

import numpy as np
from _typeshed import ReadableBuffer
from nsqfast._ext.protocol.publish_command import Encoded
from numpy.typing import NDArray

class Pieces(NamedTuple):
    starts: bytes
    ends: bytes
    rest: int

def split(data: ReadableBuffer, delimiter: int) -> Pieces: ...
def encode(
    data: ReadableBuffer | NDArray[np.uint8],
    starts: ReadableBuffer | NDArray[np.int64],
    ends: ReadableBuffer | NDArray[np.int64],
    chosen: ReadableBuffer | NDArray[np.uint8],
    first: int,
    count_max: int,
    size_max: int,
) -> tuple[Encoded | None, int]: ...
