"""GET /metrics. What it takes is loaded when it is asked for: most starts should not wait for it."""

import asyncio
from typing import TYPE_CHECKING

from nsqfast.net.http_message import Request, Response

if TYPE_CHECKING:
    from nsqfast.nsqd.metrics import Metrics
    from nsqfast.nsqd.server import Server


class MetricsPage:
    """A handler whose answer is made little by little."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._metrics: Metrics | None = None

    async def get(self, request: Request) -> Response:
        """All figures, in the format that the Accept header asks for."""
        if self._metrics is None:
            # Reading it from disk can take long, and the loop has others to serve.
            made = await asyncio.to_thread(_load)
            self._metrics = self._metrics or made(self._server)
        return await self._metrics.answer(request.headers.get(b"accept", b"").decode("latin-1"))


def _load() -> "type[Metrics]":
    from nsqfast.nsqd.metrics import Metrics

    return Metrics
