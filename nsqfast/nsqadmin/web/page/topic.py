"""/topics/T: a topic, its channels, and its share on each node."""

from dataclasses import replace

from nsqfast.nsqadmin.live.model import Topic
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.facts import paused_state, sum_topic
from nsqfast.nsqadmin.web.near import near_names
from nsqfast.nsqadmin.web.page.parts import CHANNELS, TOPIC_NODES, make_shares
from nsqfast.nsqadmin.web.page.problems import TABLE as PROBLEMS
from nsqfast.nsqadmin.web.pages import Page, PageNotFoundError, PageRequest
from nsqfast.nsqadmin.web.tables import make_table
from nsqfast.nsqadmin.web.view import Link, State, View

OWN_PROBLEMS = replace(PROBLEMS, searchable=None, filters=(), is_main=False)


async def find_topic(request: PageRequest) -> Topic:
    """The one in the address; PageNotFoundError with near names."""
    name = request.match["topic"]
    topic = request.cluster.topics.get(name)
    if topic is None:
        near = await near_names(name, request.cluster.topics)
        urls = request.context.urls
        raise PageNotFoundError("topic", name, [(each, urls.topic(each)) for each in near])
    return topic


def topic_state(topic: Topic) -> State:
    """What stands beside its name."""
    if not topic.parts:
        return State("off", "inactive", "only nsqlookupd knows it: no nsqd has it")
    return paused_state(topic) or State("ok", "running")


async def build(request: PageRequest) -> View:
    """State, tiles, own problems, channels, nodes."""
    topic = await find_topic(request)
    facts = sum_topic(topic)
    found = [each for each in request.context.problems.found if each.topic == topic.name]
    shares = make_shares(request.cluster, topic.name, topic.parts)
    return View(
        title=topic.name,
        crumbs=[Link("Topics", request.context.urls.to("/topics"))],
        texts={
            "in": texts.rate(facts.in_s),
            "own_depth": texts.short(topic.counts.depth),
            "depth": texts.short(facts.depth),
            "consumers": texts.count(facts.consumer_count),
            "nodes": texts.count(len(topic.parts)),
            "messages": texts.short(topic.counts.message_count),
        },
        states={"topic": topic_state(topic)},
        shown={"problems": bool(found), "inactive": facts.is_inactive},
        tables={
            "problems": make_table(request, OWN_PROBLEMS, found),
            "channels": make_table(request, CHANNELS, list(topic.channels.values())),
            "nodes": make_table(request, TOPIC_NODES, shares),
        },
        facts={"topic": topic},
    )


PAGE = Page("topic", "/topics/{topic}", build, "topic.html", "topics")
