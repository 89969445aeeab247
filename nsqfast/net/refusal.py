"""Tell a peer that it is not served, so that it can go elsewhere at once instead of waiting for a timeout."""

import asyncio
from typing import cast

from nsqfast.net.http_message import Request, render
from nsqfast.net.http_reply import error_answer

LINGER_S = 1.0  # for a peer that sends nothing, or keeps sending


class Refusal(asyncio.Protocol):
    """Answers the first bytes, whatever they are, with `answer` and ends the connection.

    It waits for them because some HTTP clients treat an answer before their request as a broken connection. It then
    reads and discards input for a moment, because closing with unread input would reset the connection and take the
    answer with it.
    """

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_told = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        if self._is_told or self._transport is None:
            return
        self._is_told = True
        self._transport.write(self._answer)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()


def refuse_http() -> Refusal:
    """503 for any request of a client beyond --max-connections."""
    request = Request("", b"/", "")
    request.close = True
    answer = error_answer(503, "TOO_MANY_CONNECTIONS", b"Retry-After: 1\r\n")
    return Refusal(render(request, answer))
