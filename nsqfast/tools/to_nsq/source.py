"""Standard input: reads available data at once, and waits for more without blocking the event loop."""

import asyncio
import os
import stat

from nsqfast.tools.shared.program import ToolError
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
