"""/topics: every topic with its numbers; searchable, sortable, in pages."""

import heapq
from collections.abc import Sequence

from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.facts import TopicFacts, paused_word, topic_states
from nsqfast.nsqadmin.web.page.problems import problems_by
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.pages import Page
from nsqfast.nsqadmin.web.search import Searchable
from nsqfast.nsqadmin.web.tables import Column, TableSpec, make_table, with_states
from nsqfast.nsqadmin.web.view import View

SPARK_CHANNELS = 20  # a page has a hundred topics, and each line takes some microseconds


def _address(request: PageRequest, facts: TopicFacts) -> str:
    return request.context.urls.topic(facts.name)


def _spark(request: PageRequest, facts: TopicFacts) -> Sequence[float | None]:
    """Of the topic with its deepest channels."""
    channels = facts.topic.channels.values()
    deepest = heapq.nlargest(SPARK_CHANNELS, channels, key=lambda each: each.counts.depth)
    keys = [("channel", facts.name, channel.name) for channel in deepest]
    return request.context.history.sparkline(("topic", facts.name), *keys)


def oldest_column() -> Column[TopicFacts]:
    """The estimated age of the oldest waiting message."""
    return Column(
        "oldest",
        "Oldest",
        lambda facts: facts.oldest_s,
        texts.duration,
        "number",
        3,
        title=lambda facts: "at least" if facts.oldest_is_minimum else "",
        help="Estimated age of the message that waits longest",
    )


COLUMNS: Sequence[Column[TopicFacts]] = (
    Column("name", "Topic", lambda facts: facts.name, href=_address),
    Column(
        "state",
        "State",
        lambda facts: ", ".join(state.word for state in topic_states(facts)),
        chips=topic_states,
        kind="chips",
        priority=2,
        can_sort=False,
    ),
    Column(
        "depth",
        "Depth",
        lambda facts: facts.depth,
        texts.count,
        "number",
        help="Messages that wait in the topic and in its channels",
    ),
    Column("in", "Published", lambda facts: facts.in_s, texts.rate, "number", 2),
    Column(
        "growth",
        "Lag grows by",
        lambda facts: facts.slope,
        texts.slope,
        "number",
        3,
        help="Of the depth, over the last five minutes",
    ),
    oldest_column(),
    Column("in_flight", "In flight", lambda facts: facts.in_flight_count, texts.count, "number", 4),
    Column("channels", "Channels", lambda facts: facts.channel_count, texts.count, "number", 4),
    Column("consumers", "Consumers", lambda facts: facts.consumer_count, texts.count, "number", 3),
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
    searchable=Searchable(
        text=lambda facts: facts.name,
        flags={
            "is:paused": lambda facts: facts.paused_parts + facts.paused_channels > 0,
            "is:ephemeral": lambda facts: facts.topic.is_ephemeral,
            "is:inactive": lambda facts: facts.is_inactive,
            "is:growing": lambda facts: facts.is_growing,
            "no:consumers": lambda facts: facts.idle_channels > 0,
        },
        numbers={
            "depth": lambda facts: facts.depth,
            "rate": lambda facts: facts.in_s,
            "in": lambda facts: facts.in_s,
            "growth": lambda facts: facts.slope,
            "oldest": lambda facts: facts.oldest_s,
            "in_flight": lambda facts: facts.in_flight_count,
            "channels": lambda facts: facts.channel_count,
            "consumers": lambda facts: facts.consumer_count,
        },
    ),
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


async def build(request: PageRequest) -> View:
    """One table: topics with problems first, the worst of them at the top."""
    problems = problems_by(request.context.problems.found, lambda problem: problem.topic)
    known = await request.topic_facts()
    by_name = {facts.name: facts for facts in known if facts.name in problems}
    first = [by_name[name] for name in problems if name in by_name]
    facts = [*first, *[each for each in known if each.name not in by_name]]
    spec = with_states(TABLE, lambda each: topic_states(each, problems.get(each.name, ())))
    return View("Topics", tables={"topics": make_table(request, spec, facts)})


PAGE = Page("topics", "/topics", build, "topics.html", "topics")
