"""/counter: how many messages all channels got, as a running number."""

import asyncio

from nsqfast.nsqadmin.cluster.model import Cluster
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.graphite import ANY, make_pictures
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.pages import Page
from nsqfast.nsqadmin.web.view import View

METRICS = ("message_count",)
SLICE = 500  # topics added up before others get their turn


async def add_up(cluster: Cluster) -> tuple[int, float | None]:
    """Messages, and messages per second; None if no channel's rate is known."""
    total, rate, is_known = 0, 0.0, False
    for number, topic in enumerate(cluster.topics.values(), 1):
        for channel in topic.channels.values():
            total += channel.counts.message_count
            if channel.rates is not None:
                is_known = True
                rate += channel.rates.in_s
        if number % SLICE == 0:
            await asyncio.sleep(0)
    return total, rate if is_known else None


async def build(request: PageRequest) -> View:
    """Scripts let the number grow at the rate until the next tick."""
    total, rate = await add_up(request.cluster)
    return View(
        "Counter",
        texts={"count": f"{total:,}", "rate": texts.rate(rate)},
        facts={"pictures": make_pictures(request.context, request.query, METRICS, ANY, ANY)},
        data={"count": total, "rate": rate or 0.0},
    )


PAGE = Page("counter", "/counter", build, "counter.html", "counter")
