"""/topics/T: a topic's state, its problems, its rate, its channels and its nodes."""

import heapq

from nsqfast.nsqadmin.cluster.model import Topic
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.charts import DEPTH, LINES_MAX, POINT_S, Chart, Line, make_plan
from nsqfast.nsqadmin.web.elements import Link, State
from nsqfast.nsqadmin.web.facts import (
    TopicFacts,
    channel_states,
    pause_actions,
    paused_state,
    sum_topic,
)
from nsqfast.nsqadmin.web.graphite import TOPIC_METRICS, make_pictures
from nsqfast.nsqadmin.web.near import near_names
from nsqfast.nsqadmin.web.page.parts import CHANNELS, TOPIC_NODES, make_shares
from nsqfast.nsqadmin.web.page.problems import own_problems, problems_by
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.pages import Page, PageNotFoundError
from nsqfast.nsqadmin.web.tables import make_table, with_states
from nsqfast.nsqadmin.web.view import View


async def find_topic(request: PageRequest) -> Topic:
    """PageNotFoundError has similar names."""
    name = request.match["topic"]
    topic = request.cluster.topics.get(name)
    if topic is None:
        urls = request.context.urls
        near = await near_names(name, request.cluster.topics)
        raise PageNotFoundError("topic", name, [(other, urls.topic(other)) for other in near])
    return topic


def make_charts(topic: Topic) -> list[Chart]:
    """Its rate; the depth of the LINES_MAX deepest channels, or of its own queue if there are none."""
    deepest = heapq.nlargest(LINES_MAX, topic.channels.values(), key=lambda each: each.counts.depth)
    lines = [
        Line(channel.name, DEPTH, number, ("channel", topic.name, channel.name))
        for number, channel in enumerate(sorted(deepest, key=lambda each: each.name), 1)
    ]
    key = ("topic", topic.name)
    title = (
        "Depth per channel"
        if len(topic.channels) <= LINES_MAX
        else f"Depth of the {LINES_MAX} deepest channels"
    )
    return [
        Chart("rates", "Published", [Line("Published", ["in_s"], 1, key)], "/s"),
        Chart("depth", title, lines)
        if lines
        else Chart("depth", "Depth of the topic", [Line("Topic", DEPTH, 1, key)]),
    ]


def state_line(facts: TopicFacts) -> str:
    """`published 812/s · depth 0 · 3 channels · 12 consumers · 2 nodes · 88 M messages in all`"""
    topic = facts.topic
    parts = [
        f"published {texts.rate(facts.in_s)}",
        f"depth {texts.count(facts.depth)}",
        texts.plural(facts.channel_count, "channel"),
        texts.plural(facts.consumer_count, "consumer"),
        texts.plural(len(topic.parts), "node"),
        f"{texts.short(topic.counts.message_count)} messages in all",
    ]
    if topic.message_bytes is not None:
        parts.append(texts.size(topic.message_bytes))
    if facts.oldest_s is not None:
        shown = texts.age(facts.oldest_s, is_minimum=facts.oldest_is_minimum)
        parts.append(f"oldest {shown} (est.)")
    return " · ".join(parts)


def set_state(view: View, key: str, state: State | None) -> None:
    """A chip that appears and disappears: the templates give it `data-shown`, too."""
    view.states[key] = state or State("off", "")
    view.shown[f"{key}-shown"] = state is not None


async def build(request: PageRequest) -> View:
    """See the module."""
    topic = await find_topic(request)
    context, query = request.context, request.query
    facts = sum_topic(topic)
    problems = own_problems(request, topic=topic.name)
    by_channel = problems_by(problems.matched, lambda problem: problem.channel)
    channels = with_states(
        CHANNELS, lambda each: channel_states(each, by_channel.get(each.name, ()))
    )
    shares = make_shares(request.cluster, topic.name, topic.parts)
    view = View(
        topic.name,
        crumbs=[Link("Topics", context.urls.to("/topics"))],
        texts={"state-line": state_line(facts)},
        shown={"problems-shown": bool(problems.matched), **pause_actions(topic)},
        tables={
            "problems": problems,
            "channels": make_table(request, channels, list(topic.channels.values())),
            "nodes": make_table(request, TOPIC_NODES, shares),
        },
        data={"points": request.cluster.at // POINT_S},
        facts={
            "topic": topic.name,
            "plan": make_plan(query, context.options.history_ns / 1e9, make_charts(topic)),
            "pictures": make_pictures(context, query, TOPIC_METRICS, topic.name),
        },
    )
    set_state(view, "paused", paused_state(topic))
    inactive = State("off", "inactive", "only nsqlookupd knows it: no nsqd has it")
    set_state(view, "inactive", inactive if facts.is_inactive else None)
    set_state(view, "ephemeral", State("info", "ephemeral") if topic.is_ephemeral else None)
    return view


PAGE = Page("topic", "/topics/{topic}", build, "topic.html", "topics")
