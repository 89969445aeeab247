"""/topics/T/C: a channel and its share on each node."""

from nsqfast.nsqadmin.live.model import Channel
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.facts import paused_state
from nsqfast.nsqadmin.web.near import near_names
from nsqfast.nsqadmin.web.page.parts import CHANNEL_NODES, make_shares
from nsqfast.nsqadmin.web.page.topic import OWN_PROBLEMS, find_topic
from nsqfast.nsqadmin.web.pages import Page, PageNotFoundError, PageRequest
from nsqfast.nsqadmin.web.tables import make_table
from nsqfast.nsqadmin.web.view import Link, State, View


async def find_channel(request: PageRequest) -> Channel:
    """The one in the address; PageNotFoundError with near names."""
    topic = await find_topic(request)
    name = request.match["channel"]
    channel = topic.channels.get(name)
    if channel is None:
        urls = request.context.urls
        near = await near_names(name, topic.channels)
        links = [(each, urls.channel(topic.name, each)) for each in near]
        raise PageNotFoundError(
            "channel", f"{topic.name}/{name}", links or [(topic.name, urls.topic(topic.name))]
        )
    return channel


def channel_state(channel: Channel) -> State:
    """What stands beside its name."""
    if not channel.parts:
        return State("off", "inactive", "only nsqlookupd knows it: no nsqd has it")
    if paused := paused_state(channel):
        return paused
    if channel.counts.depth and not channel.counts.client_count:
        return State("crit", "no consumers")
    return State("ok", "running")


async def build(request: PageRequest) -> View:
    """State, tiles, own problems, nodes."""
    channel = await find_channel(request)
    urls = request.context.urls
    found = [
        each
        for each in request.context.problems.found
        if each.topic == channel.topic and each.channel == channel.name
    ]
    counts, rates = channel.counts, channel.rates
    shares = make_shares(request.cluster, channel.topic, channel.parts)
    return View(
        title=channel.name,
        crumbs=[
            Link("Topics", urls.to("/topics")),
            Link(channel.topic, urls.topic(channel.topic)),
        ],
        texts={
            "depth": texts.short(counts.depth),
            "in_flight": texts.short(counts.in_flight_count),
            "deferred": texts.short(counts.deferred_count),
            "out": texts.rate(rates.out_s if rates else None),
            "requeue": texts.rate(rates.requeue_s if rates else None),
            "oldest": texts.age(channel.oldest_s, is_minimum=channel.oldest_is_minimum),
            "consumers": texts.count(counts.client_count),
        },
        states={"channel": channel_state(channel)},
        shown={"problems": bool(found)},
        tables={
            "problems": make_table(request, OWN_PROBLEMS, found),
            "nodes": make_table(request, CHANNEL_NODES, shares),
        },
        facts={"channel": channel},
    )


PAGE = Page("channel", "/topics/{topic}/{channel}", build, "channel.html", "topics")
