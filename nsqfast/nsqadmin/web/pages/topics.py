"""/topics and /topics/T: every topic with its numbers; one with its problems, its rate, its channels and nodes."""

import heapq
from collections.abc import Sequence

from nsqfast.nsqadmin.cluster.model import Topic
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.charts import (
    DEPTH,
    LINES_MAX,
    POINT_S,
    TOPIC_METRICS,
    Chart,
    Line,
    make_pictures,
    make_plan,
    published_chart,
)
from nsqfast.nsqadmin.web.pages.problems import own_problems, problems_by
from nsqfast.nsqadmin.web.pages.shares import (
    CHANNELS,
    EPHEMERAL,
    INACTIVE,
    OLDEST,
    TOPIC_NODES,
    channel_states,
    find_topic,
    make_part_facts,
    pause_actions,
    paused_state,
    paused_word,
    topic_states,
)
from nsqfast.nsqadmin.web.request import PageRequest, TopicFacts, sum_topic
from nsqfast.nsqadmin.web.tables import (
    Column,
    TableSpec,
    chips,
    link,
    make_table,
    number,
    with_states,
)
from nsqfast.nsqadmin.web.texts import Link
from nsqfast.nsqadmin.web.view import Page, View

SPARK_CHANNELS = 20  # a page has a hundred topics, and each line takes some microseconds


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
        published_chart(key),
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


async def build_topic(request: PageRequest) -> View:
    topic = await find_topic(request.context, request.cluster, **request.match)
    context, query = request.context, request.query
    facts = sum_topic(topic)
    problems = own_problems(request, topic=topic.name)
    by_channel = problems_by(problems.matched, lambda problem: problem.channel)
    channels = with_states(
        CHANNELS, lambda each: channel_states(each, by_channel.get(each.name, ()))
    )
    shares = make_part_facts(request.cluster, topic.name, topic.parts)
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
    view.set_state("paused", paused_state(topic))
    view.set_state("inactive", INACTIVE if facts.is_inactive else None)
    view.set_state("ephemeral", EPHEMERAL if topic.is_ephemeral else None)
    return view


TOPIC_PAGE = Page("topic", "/topics/{topic}", build_topic, "topic.html", "topics")


def _spark(request: PageRequest, facts: TopicFacts) -> Sequence[float | None]:
    """Of the topic with its deepest channels."""
    channels = facts.topic.channels.values()
    deepest = heapq.nlargest(SPARK_CHANNELS, channels, key=lambda each: each.counts.depth)
    keys = [("channel", facts.name, channel.name) for channel in deepest]
    return request.context.history.sparkline(("topic", facts.name), *keys)


COLUMNS: Sequence[Column[TopicFacts]] = (
    link("name", "Topic", lambda facts: facts.name, lambda urls, facts: urls.topic(facts.name)),
    chips("state", "State", topic_states),
    number(
        "depth",
        "Depth",
        lambda facts: facts.depth,
        hint="Messages that wait in the topic and in its channels",
    ),
    number("in", "Published", lambda facts: facts.in_s, 2, texts.rate),
    number(
        "growth",
        "Lag grows by",
        lambda facts: facts.slope,
        3,
        texts.slope,
        hint="Of the depth, over the last five minutes",
    ),
    OLDEST,
    number("in_flight", "In flight", lambda facts: facts.in_flight_count, 4),
    number("channels", "Channels", lambda facts: facts.channel_count, 4),
    number("consumers", "Consumers", lambda facts: facts.consumer_count, 3),
    Column(
        "trend",
        "Trend",
        lambda facts: facts.slope,
        texts.slope,
        "spark",
        4,
        spark=_spark,
        help="Depth over the last hour, of the topic and its channels",
    ),
)

TABLE: TableSpec[TopicFacts] = TableSpec(
    name="topics",
    caption="Topics",
    columns=COLUMNS,
    key=lambda facts: facts.name,
    data=lambda facts: {
        "topic": facts.name,
        "paused": paused_word(facts.topic),
        "inactive": "yes" if facts.is_inactive else "",
    },
    searchable=lambda facts: facts.name,
    flags={
        "is:paused": lambda facts: facts.topic.parts.paused_count + facts.paused_channels > 0,
        "is:ephemeral": lambda facts: facts.topic.is_ephemeral,
        "is:inactive": lambda facts: facts.is_inactive,
        "is:growing": lambda facts: facts.is_growing,
        "no:consumers": lambda facts: facts.idle_channels > 0,
    },
    numbers=("depth", "rate=in", "in", "growth", "oldest", "in_flight", "channels", "consumers"),
    filters=(
        ("paused", "is:paused"),
        ("no consumers", "no:consumers"),
        ("growing", "is:growing"),
        ("ephemeral", "is:ephemeral"),
        ("inactive", "is:inactive"),
    ),
    can_select=True,
    has_actions=True,
    empty="No topic.",
    search_label="Search topics",
)


async def build_topics(request: PageRequest) -> View:
    """One table: topics with problems first, the worst of them at the top."""
    problems = problems_by(request.context.problems.found, lambda problem: problem.topic)
    known = await request.facts.topics(request.cluster)
    by_name = {facts.name: facts for facts in known if facts.name in problems}
    first = [by_name[name] for name in problems if name in by_name]
    facts = [*first, *[each for each in known if each.name not in by_name]]
    spec = with_states(TABLE, lambda each: topic_states(each, problems.get(each.name, ())))
    return View("Topics", tables={"topics": make_table(request, spec, facts)})


TOPICS_PAGE = Page("topics", "/topics", build_topics, "topics.html", "topics")
