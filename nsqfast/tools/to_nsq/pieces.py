"""Split an input at a delimiter, without making a Python object for each piece."""

from nsqfast._ext.protocol.publish_command import Encoded
from nsqfast._ext.protocol.records import encode, split
from nsqfast.tools.shared.program import ToolError
from nsqfast.wire import protocol

MPUB_COUNT_MAX = 1000
MPUB_SIZE_MAX = 128 * 1024
PIECE_SIZE_MAX = protocol.MPUB_SIZE_MAX - 1023  # what stands around it has room


class Pieces:
    """Pieces that wait to be published."""

    def __init__(self, data: bytes | bytearray, starts: bytes, ends: bytes) -> None:
        self._data = data
        self._starts = memoryview(starts).cast("q")
        self._ends = memoryview(ends).cast("q")
        self._chosen = b"\x01" * len(self._starts)
        self._first = 0

    def __len__(self) -> int:
        return len(self._starts) - self._first

    def take(self, count_max: int) -> Encoded:
        """Take the next ones as one MPUB, up to this number; there is at least one."""
        bodies, self._first = encode(
            self._data,
            self._starts,
            self._ends,
            self._chosen,
            self._first,
            min(count_max, MPUB_COUNT_MAX),
            MPUB_SIZE_MAX,
        )
        assert bodies is not None
        return bodies


class Splitter:
    """Blocks in, pieces out; keeps the part without a delimiter."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._rest = bytearray()

    @property
    def rest_size(self) -> int:
        """Bytes of the piece that has no end yet."""
        return len(self._rest)

    def add(self, data: bytes) -> Pieces:
        """The pieces that end in `data`, without empty ones."""
        self._rest += data
        if len(self._rest) > PIECE_SIZE_MAX:
            raise ToolError(f"a piece of more than {PIECE_SIZE_MAX} bytes: is --delimiter right?")
        if self._delimiter not in data:
            return Pieces(b"", b"", b"")
        block = self._rest
        found = split(block, self._delimiter[0])
        self._rest = block[found.rest :]
        return Pieces(block, found.starts, found.ends)

    def end(self) -> Pieces:
        """The last piece, if no delimiter ended it; it is complete all the same."""
        if not self._rest:
            return Pieces(b"", b"", b"")
        return self.add(self._delimiter)
