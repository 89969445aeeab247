"""The HTTP side of an nsqlookupd that says what a test wants, in the event loop of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiohttp import web

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

V1 = {"X-NSQ-Content-Type": "nsq; version=1.0"}


class Lookupd:
    """Answers /lookup with the addresses it is given, and /topics with its topics.

    What `answer` raises fails the test at the end.
    """

    def __init__(self, *addresses: str, old: bool = False) -> None:
        self.addresses = list(addresses)
        self.old = old
        self.topics: list[str] = []
        self.requests: list[web.Request] = []
        self.answer: Callable[[], web.Response] | None = None  # instead of the usual one
        self.release: asyncio.Event | None = None  # an event to wait for
        self._errors: list[BaseException] = []

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._lookup)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.address = "{}:{}".format(*self._runner.addresses[0])
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self._runner.cleanup()
        if kind is None and self._errors:
            raise self._errors[0]

    async def _lookup(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.release is not None:
            await self.release.wait()
        if self.answer is not None:
            try:
                return self.answer()
            except Exception as error:
                self._errors.append(error)
                raise
        producers = []
        for address in self.addresses:
            host, port = address.rsplit(":", 1)
            producers.append({"broadcast_address": host, "tcp_port": int(port), "http_port": 1})
        found = {"channels": [], "producers": producers, "topics": self.topics}
        if self.old:
            return web.json_response({"status_code": 200, "status_txt": "OK", "data": found})
        return web.json_response(found, headers=V1)
