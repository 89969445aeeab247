"""/counter: how many messages all channels have got together."""

from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.pages import Page, PageRequest
from nsqfast.nsqadmin.web.view import View


async def build(request: PageRequest) -> View:
    """One number."""
    total = sum(
        channel.counts.message_count
        for topic in request.cluster.topics.values()
        for channel in topic.channels.values()
    )
    rate = texts.rate(request.cluster.totals.out_s)
    return View("Counter", texts={"total": texts.count(total), "rate": rate}, data={"total": total})


PAGE = Page("counter", "/counter", build, "counter.html", "counter")
