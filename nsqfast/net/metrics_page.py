"""GET /metrics. Its modules are loaded on the first request, because most starts should not wait for them."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from nsqfast.net.http_message import Request, Response

S = TypeVar("S")


class Metrics(Protocol):
    """The figures of one daemon."""

    async def answer(self, accept: str) -> Response:
        """All figures, in the format that the Accept header asks for; may be made in parts."""


class MetricsPage(Generic[S]):
    """A handler. `load` imports the code that makes a server's figures, and returns it; it runs in a thread."""

    def __init__(self, load: Callable[[], Callable[[S], Metrics]], server: S) -> None:
        self._load = load
        self._server = server
        self._metrics: Metrics | None = None

    async def get(self, request: Request) -> Response:
        """All figures, in the format that the Accept header asks for."""
        if self._metrics is None:
            # Loading it from disk can take long, and the loop has others to serve.
            made = await asyncio.to_thread(self._load)
            self._metrics = self._metrics or made(self._server)
        return await self._metrics.answer(request.headers.get(b"accept", b"").decode("latin-1"))
