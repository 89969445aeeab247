"""What takes long is done a part at a time, and the loop serves others in between."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from nsqfast._ext.budget import Part
from nsqfast.net.http_message import Response
from nsqfast.net.http_routes import Answer

PIECE_UNITS = 64  # of a budget: the clock is looked at after each piece


class Parts:
    """Of one API: however many ask, one answer is made at a time, and one part of it in a turn of the loop."""

    def __init__(self) -> None:
        self._line = asyncio.Lock()

    def answer(self, pieces: Iterator[bytes], finish: Callable[[list[bytes]], Response]) -> Answer:
        """`finish` makes it of all pieces: at once where one part is enough, else later."""
        found: list[bytes] = []
        if not self._line.locked() and _gather(pieces, found):
            return finish(found)
        return self._answer_later(pieces, found, finish)

    async def _answer_later(
        self,
        pieces: Iterator[bytes],
        found: list[bytes],
        finish: Callable[[list[bytes]], Response],
    ) -> Response:
        async with self._line:
            is_all = False
            while not is_all:
                await asyncio.sleep(0)
                is_all = _gather(pieces, found)
            return finish(found)


class Turns:
    """Connections that sent more than a part is enough for go on in later turns: in their order, and all of them
    together for a part in each.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    def join(self, go_on: Callable[[], None]) -> None:
        """To be called once, behind those that are here already."""
        self._waiting.append(go_on)
        self._run_soon()

    def _run_soon(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        part = Part()
        try:
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
                if part.is_spent(PIECE_UNITS):
                    break
        finally:
            self._run_soon()


def _gather(pieces: Iterator[bytes], found: list[bytes]) -> bool:
    """A part of them; whether that was the last."""
    part = Part()
    for piece in pieces:
        found.append(piece)
        if part.is_spent(PIECE_UNITS):
            return False
    return True
