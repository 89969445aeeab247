"""/topics: every topic with its numbers; searchable, sortable, in pages."""

from collections.abc import Sequence

from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.facts import TopicFacts, paused_word, topic_states
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.pages import Page
from nsqfast.nsqadmin.web.search import Searchable
from nsqfast.nsqadmin.web.tables import Column, TableSpec, make_table
from nsqfast.nsqadmin.web.view import View


def _address(request: PageRequest, facts: TopicFacts) -> str:
    return request.context.urls.topic(facts.name)


def _spark(request: PageRequest, facts: TopicFacts) -> Sequence[float | None]:
    return request.context.history.sparkline(("topic", facts.name))


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
    Column("in", "In", lambda facts: facts.in_s, texts.rate, "number", 2),
    Column("out", "Out", lambda facts: facts.out_s, texts.rate, "number", 3),
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
        help="Depth of the topic over the last hour",
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
            "out": lambda facts: facts.out_s,
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
    """One table."""
    facts = await request.topic_facts()
    return View("Topics", tables={"topics": make_table(request, TABLE, facts)})


PAGE = Page("topics", "/topics", build, "topics.html", "topics")
