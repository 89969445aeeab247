"""The pieces of a long answer that its peer has yet to read; they count as memory until then."""

import logging
from collections import deque
from collections.abc import Callable

from nsqfast._ext.core.memory import charge_bytes, is_full
from nsqfast.net.http_message import TEXT, Request, Response
from nsqfast.wire.refusals import REFUSED

log = logging.getLogger(__name__)

NO_MEMORY = Response(503, b"503 Service Unavailable: no memory left for the answer", TEXT)


class Unsent:
    """Of one connection; true while there are some."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def keep(self, request: Request, response: Response) -> Response:
        """Keep the pieces of an answer, and return what to send before; another one if memory has no room for them."""
        if not response.pieces or request.method == "HEAD":
            return response
        size = sum(map(len, response.pieces))
        charge_bytes(size)
        if not is_full():
            self._pieces.extend(response.pieces)
            return response
        charge_bytes(-size)
        REFUSED["no_memory"] += 1
        if (note := request.admit_line()) is not None:
            text = (
                "HTTP: no memory left for the answer to client(%s), %d bytes: raise --max-memory%s"
            )
            log.warning(text, request.remote, size, note)
        return NO_MEMORY

    def send_next(self, write: Callable[[bytes], None]) -> None:
        """One by one: joining them would take longer than a part of a turn."""
        piece = self._pieces.popleft()
        charge_bytes(-len(piece))
        write(piece)

    def drop(self) -> None:
        """The peer has gone."""
        charge_bytes(-sum(map(len, self._pieces)))
        self._pieces.clear()
