"""Make long answers one part at a time; the loop serves others in between."""

import asyncio
from collections.abc import Callable, Iterator

from nsqfast._ext.core.budget import Part
from nsqfast.net.http_message import Response
from nsqfast.net.http_routes import Answer

PIECE_UNITS = 64  # of a budget: the clock is read after each piece


class Parts:
    """Long answers of one API. All answers made in one turn of the loop share one part of it, and of the answers that
    take longer one is made at a time.
    """

    def __init__(self) -> None:
        self._line = asyncio.Lock()
        self._part: Part | None = None  # for this turn

    def answer(self, pieces: Iterator[bytes], finish: Callable[[list[bytes]], Response]) -> Answer:
        """Make an answer with `finish` from some long pieces: at once if one part is enough, otherwise later."""
        found: list[bytes] = []
        if not self._line.locked() and self._gather_now(pieces, found):
            return finish(found)
        return self._answer_later(pieces, found, finish)

    def _gather_now(self, pieces: Iterator[bytes], found: list[bytes]) -> bool:
        if self._part is None:
            self._part = Part()
            asyncio.get_running_loop().call_soon(self._end_turn)
        return not self._part.is_spent(0) and _gather(self._part, pieces, found)

    def _end_turn(self) -> None:
        self._part = None

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
                is_all = _gather(Part(), pieces, found)
            return finish(found)


def _gather(part: Part, pieces: Iterator[bytes], found: list[bytes]) -> bool:
    """Join a part of the pieces; returns it and whether it was the last."""
    some, is_all = [], True
    for piece in pieces:
        some.append(piece)
        if part.is_spent(PIECE_UNITS):
            is_all = False
            break
    found.append(b"".join(some))
    return is_all
