"""The way of a channel's page in docs/ARCHITECTURE.md is the one that a request takes: no module more, none less."""

import contextvars
import sys

from aiohttp import web

from support.access import probed
from support.admin import LiveCluster, text_of
from support.imports import ROOT
from support.waiting import wait_until
from support.ways import read_ways
from support.web import get

PAGE = "/topics/orders/billing"


class Tracer:
    """Notes the modules of nsqadmin whose functions run for a request of PAGE, and for nothing else."""

    def __init__(self):
        self.modules = set()
        self._is_traced = contextvars.ContextVar("is_traced", default=False)

    def note(self, frame, event, _arg):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and self._is_traced.get() and module.startswith("nsqfast.nsqadmin."):
            self.modules.add(module)

    @property
    def middleware(self):
        @web.middleware
        async def trace(request, handler):
            if request.path != PAGE:
                return await handler(request)
            self._is_traced.set(True)  # also for the tasks that this one makes
            sys.setprofile(self.note)
            try:
                return await handler(request)
            finally:
                sys.setprofile(None)

        return trace


def test_a_channel_page_crosses_the_modules_that_are_written_down(tmp_path):
    way = read_ways((ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8"))[
        "A channel's page"
    ]
    tracer = Tracer()
    with LiveCluster(tmp_path, ("nsqfast",), ("nsqfast",)) as cluster:
        cluster.make("orders", "billing")
        cluster.publish("orders", 3, on=0)
        with probed(
            lambda app, _: app.middlewares.insert(0, tracer.middleware),
            nsqd_http_addresses=[],
            nsqlookupd_http_addresses=[text_of(cluster.lookupds[0].http)],
            poll_interval_ns=200_000_000,
        ) as http:
            wait_until(lambda: get(http, PAGE).status == 200)
    assert tracer.modules == way.modules
