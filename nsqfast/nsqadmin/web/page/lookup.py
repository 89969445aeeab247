"""/lookup: what nsqlookupd know, first of all the topics and channels that no nsqd has any more."""

from dataclasses import dataclass

from nsqfast.nsqadmin.cluster.model import Cluster
from nsqfast.nsqadmin.web.page.nodes import LOOKUPDS, lookupd_facts
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.pages import Page
from nsqfast.nsqadmin.web.search import Searchable
from nsqfast.nsqadmin.web.tables import Column, TableSpec, make_table
from nsqfast.nsqadmin.web.view import View


@dataclass(slots=True, eq=False)
class Inactive:
    """A topic (channel '') or channel that only nsqlookupd know, and which of them."""

    topic: str
    channel: str
    lookupds: list[str]


INACTIVE: TableSpec[Inactive] = TableSpec(
    name="inactive",
    caption="Inactive topics and channels",
    columns=(
        Column(
            "topic",
            "Topic",
            lambda each: each.topic,
            href=lambda request, each: request.context.urls.topic(each.topic),
        ),
        Column("channel", "Channel", lambda each: each.channel),
        Column("lookupds", "Known to", lambda each: ", ".join(each.lookupds), priority=2),
    ),
    key=lambda each: f"{each.topic}/{each.channel}" if each.channel else each.topic,
    data=lambda each: {"topic": each.topic, "channel": each.channel, "inactive": "yes"},
    searchable=Searchable(
        text=lambda each: f"{each.topic} {each.channel}",
        flags={"is:ephemeral": lambda each: "#" in each.topic + each.channel},
    ),
    can_select=True,
    has_actions=True,
    empty="Every topic that nsqlookupd know has an nsqd.",
    search_label="Search inactive",
)


def inactive_of(cluster: Cluster) -> list[Inactive]:
    """By name, each topic before its channels."""
    found: dict[tuple[str, str], Inactive] = {}
    for topic in cluster.topics.values():
        if not topic.parts:
            for channel in ("", *topic.channels):
                found[topic.name, channel] = Inactive(topic.name, channel, [])
    for lookupd in cluster.lookupds.values():
        for name, channels in lookupd.topics.items():
            for channel in ("", *channels):
                each = found.setdefault((name, channel), Inactive(name, channel, []))
                each.lookupds.append(lookupd.address)
    return [found[key] for key in sorted(found)]


async def build(request: PageRequest) -> View:
    """Two tables."""
    cluster = request.cluster
    return View(
        "Lookup",
        tables={
            "inactive": make_table(request, INACTIVE, inactive_of(cluster)),
            "lookupds": make_table(request, LOOKUPDS, lookupd_facts(cluster)),
        },
        facts={"has_lookupds": cluster.has_lookupds},
    )


PAGE = Page("lookup", "/lookup", build, "lookup.html", "lookup")
