"""A request for a page: its address, and the cluster at the tick that the page shows, added up by topic."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.access.users import Role
from nsqfast.nsqadmin.cluster.model import Cluster, Topic
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.web.texts import Link

VALUE_SIZE_MAX = 1024
PAGE_MAX = 10**6
PARAMETERS_MAX = 32
_NUMBER = re.compile(r"[0-9]{1,9}")
GROWS_S_MIN = 0.05  # messages per second: less is noise


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The parameters of one table. The main table of a page has plain names, others `NAME.sort`."""

    prefix: str
    text: str
    sort: str  # column; '' for the table's own order
    is_descending: bool
    page: int  # from 1


class Query:
    """The first value of each parameter; values too long or invalid count as missing."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.values: dict[str, str] = {}
        for name, value in list(pairs)[:PARAMETERS_MAX]:
            if value and len(value) <= VALUE_SIZE_MAX:
                self.values.setdefault(name, value)

    def get(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def choice(self, name: str, choices: Iterable[str]) -> str:
        """The value if it is one of these, else the first of them."""
        known = list(choices)
        value = self.get(name)
        return value if value in known else known[0]

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number between these bounds."""
        text = self.get(name)
        return min(max(int(text), least), most) if _NUMBER.fullmatch(text) else default

    def table(self, name: str = "") -> TableQuery:
        """Of the main table, or of another by its name."""
        prefix = f"{name}." if name else ""
        sort = self.get(prefix + "sort")
        return TableQuery(
            prefix=prefix,
            text=self.get(prefix + "q").strip(),
            sort=sort.removeprefix("-"),
            is_descending=sort.startswith("-"),
            page=self.number(prefix + "page", 1, 1, PAGE_MAX),
        )

    def with_(self, changes: Mapping[str, str | int]) -> str:
        """`?...` with these changes, '' removing one: a link to the same page in another state."""
        values: dict[str, str | int] = {**self.values, **changes}
        left = {name: value for name, value in values.items() if value != ""}
        return "?" + urlencode(left)

    def links(
        self, name: str, labels: Mapping[str, str], chosen: str, default: str = "", **changes: str
    ) -> list[Link]:
        """One for each value of a parameter, which the default does not need; with these other changes."""
        links = []
        for value, label in labels.items():
            address = self.with_({**changes, name: "" if value == default else value})
            links.append(Link(label, address, value == chosen))
        return links

    def text(self) -> str:
        """In a fixed order, so that equal states have one address."""
        return urlencode(sorted(self.values.items()))


@dataclass(slots=True, eq=False)
class TopicFacts:
    topic: Topic
    name: str
    depth: int
    in_flight_count: int
    in_s: float | None
    slope: float | None
    oldest_s: float | None
    oldest_is_minimum: bool
    channel_count: int
    consumer_count: int
    idle_channels: int  # with messages but without a consumer
    paused_channels: int
    is_inactive: bool


class FactsOfTick:
    """The figures of all topics of the most recent cluster, added up once for all viewers."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._facts: asyncio.Task[list[TopicFacts]] | None = None

    async def topics(self, cluster: Cluster) -> list[TopicFacts]:
        """Sorted by name; the list is shared, so do not change it."""
        if self._facts is None or self._cluster is not cluster:
            self._cluster = cluster
            self._facts = asyncio.get_running_loop().create_task(sum_topics(cluster))
        return await asyncio.shield(self._facts)


async def sum_topics(cluster: Cluster) -> list[TopicFacts]:
    facts = []
    slices = Slices()
    for topic in cluster.topics.values():
        facts.append(sum_topic(topic))
        await slices.pause()
    return facts


def sum_topic(topic: Topic) -> TopicFacts:
    """Depth, slope and in-flight include the channels'."""
    channels = topic.channels.values()
    oldest = max(
        (channel for channel in channels if channel.oldest_s is not None),
        key=lambda channel: channel.oldest_s or 0.0,
        default=None,
    )
    slopes = [channel.depth_slope for channel in channels if channel.depth_slope is not None]
    if topic.depth_slope is not None:
        slopes.append(topic.depth_slope)
    counts = [channel.counts for channel in channels]
    return TopicFacts(
        topic=topic,
        name=topic.name,
        depth=topic.counts.depth + sum(each.depth for each in counts),
        in_flight_count=sum(each.in_flight_count for each in counts),
        in_s=topic.rates.in_s if topic.rates else None,
        slope=sum(slopes) if slopes else None,
        oldest_s=oldest.oldest_s if oldest else None,
        oldest_is_minimum=oldest.oldest_is_minimum if oldest else False,
        channel_count=len(counts),
        consumer_count=sum(each.client_count for each in counts),
        idle_channels=sum(each.depth > 0 and each.client_count == 0 for each in counts),
        paused_channels=sum(channel.parts.paused_count > 0 for channel in channels),
        is_inactive=not topic.parts,
    )


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page request, as far as its View depends on the viewer: the role, not the name.

    `match` has the parts of the route, unquoted. All times are relative to `cluster.at`.
    """

    context: Context
    cluster: Cluster
    role: Role
    match: Mapping[str, str]
    query: Query
    facts: FactsOfTick
