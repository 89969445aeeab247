"""Standard input, read as it comes without blocking the event loop, and split at a delimiter."""

import asyncio
import os
import stat

from nsqfast._ext.protocol.publish_command import Encoded
from nsqfast._ext.protocol.records import encode, split
from nsqfast.tools.shared.program import ToolError
from nsqfast.wire import protocol
from nsqfast.wire.gotext import os_error

READ_SIZE = 1 << 20
STDIN = 0


class Source:
    """`size` is the number of bytes to read, if it is a file; None if unknown."""

    def __init__(self, descriptor: int = STDIN) -> None:
        self._descriptor = descriptor
        self._can_wait = (
            True  # false for a file, which is always ready, and which epoll does not accept
        )
        self.size: int | None = None
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                self._can_wait = False
                self.size = max(0, found.st_size - os.lseek(descriptor, 0, os.SEEK_CUR))
        except OSError as error:
            raise _unreadable(error) from None

    async def read(self, stop: "asyncio.Future[None]") -> bytes:
        """The next bytes; none at the end, or when `stop` is done."""
        await asyncio.sleep(0)  # an input that is always ready must not starve other tasks
        while not stop.done():
            if self._can_wait:
                await self._wait(stop)
                if stop.done():
                    break
            try:
                return os.read(self._descriptor, READ_SIZE)
            except BlockingIOError:  # another process that has it open was faster
                continue
            except OSError as error:
                raise _unreadable(error) from None
        return b""

    async def _wait(self, stop: "asyncio.Future[None]") -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(self._descriptor, _resolve, ready)
        except OSError:  # /dev/null, for example
            self._can_wait = False
            return
        try:
            await asyncio.wait([ready, stop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(self._descriptor)


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _unreadable(error: OSError) -> ToolError:
    return ToolError(f"read /dev/stdin: {os_error(error)}")


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
