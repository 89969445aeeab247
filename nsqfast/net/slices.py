"""Long work on the loop, in slices between which everybody else gets a turn."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from nsqfast._ext.core.budget import Part
from nsqfast._ext.core.memory import Memory, process_memory
from nsqfast._ext.protocol.buffer import ReadBuffer

CLOCK_UNITS = 64  # of a budget: the clock is read after so many


class Slices:
    """Call `await slices.pause()` as often as you like: it lets others run when the slice is used up.

    A slice is a compiled `Part`, in which code counts that cannot wait.
    """

    def __init__(self) -> None:
        self._part = Part()

    async def pause(self, units: int = CLOCK_UNITS) -> None:
        """Let others run, if it is time to; `units` are the work since the last call."""
        if self._part.is_spent(units):
            await asyncio.sleep(0)
            self._part = Part()


def run_slice(steps: Iterable[object], units: int) -> bool:
    """Run a slice of these steps, of so many units each; whether all are done."""
    part = Part()
    return not any(part.is_spent(units) for _ in steps)


READ_SIZE = 256 * 1024
READ_SIZE_LATE = 4 * 1024  # of one read, once the turn has had enough of large bodies
READERS_MAX = 8  # that read on in one turn
TURN_SIZE = 512 * 1024  # bytes of large bodies: new memory is slow, 1 GB a second


class Turns:
    """Connections that sent more input than fits a part continue in later turns: in order, sharing one part of each
    turn. They share `room`, too, into which each reads, and what they hold counts in `memory`.
    """

    def __init__(self, memory: Memory = process_memory) -> None:
        self.memory = memory
        self.room = ReadBuffer(READ_SIZE, memory)
        self.room.read_max = READ_SIZE
        self._waiting: deque[Callable[[], None]] = deque()
        self._readers: deque[Callable[[], None]] = deque()
        self._read_size = 0  # of large bodies, in this turn
        self._is_due = False

    def join(self, go_on: Callable[[], None]) -> None:
        """Call this once; the caller waits behind those already here."""
        self._waiting.append(go_on)
        self._run_soon()

    def hold(self, size: int, read_on: Callable[[], None]) -> bool:
        """Count so many bytes of a large body, which were read; whether its connection has to wait until `read_on` is
        called, in a later turn.
        """
        self._read_size += size
        self._run_soon()
        if self._read_size <= TURN_SIZE:
            return False
        self.room.read_max = READ_SIZE_LATE
        self._readers.append(read_on)
        return True

    def _run_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        self._read_size, self.room.read_max = 0, READ_SIZE
        part = Part()
        try:
            for _ in range(min(READERS_MAX, len(self._readers))):
                self._readers.popleft()()
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
                if part.is_spent(CLOCK_UNITS):
                    break
        finally:
            if self._waiting or self._readers:
                self._run_soon()
