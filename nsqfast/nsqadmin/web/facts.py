"""Figures of topics for tables, added up over their channels: once per tick, in slices."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from nsqfast.nsqadmin.cluster.model import Channel, Cluster, Topic
from nsqfast.nsqadmin.cluster.slices import Slices
from nsqfast.nsqadmin.problems.report import Problem
from nsqfast.nsqadmin.web.elements import State

GROWS_S_MIN = 0.05  # messages per second: less is noise


@dataclass(slots=True, eq=False)
class TopicFacts:
    """A row of the topics page."""

    topic: Topic
    name: str
    depth: int
    in_flight_count: int
    deferred_count: int
    in_s: float | None
    slope: float | None
    oldest_s: float | None
    oldest_is_minimum: bool
    channel_count: int
    consumer_count: int
    idle_channels: int  # with messages but without a consumer
    paused_parts: int
    paused_channels: int
    is_inactive: bool

    @property
    def is_growing(self) -> bool:
        """Whether it grew over the last minutes."""
        return self.slope is not None and self.slope > GROWS_S_MIN


class FactsOfTick:
    """Kept for the most recent cluster."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._facts: asyncio.Task[list[TopicFacts]] | None = None

    async def topics(self, cluster: Cluster) -> list[TopicFacts]:
        """Sorted by name; the list is shared, so do not change it."""
        if self._facts is None or self._cluster is not cluster:
            self._cluster = cluster
            self._facts = asyncio.get_running_loop().create_task(add_up(cluster))
        return await asyncio.shield(self._facts)


async def add_up(cluster: Cluster) -> list[TopicFacts]:
    """In slices."""
    facts = []
    slices = Slices()
    for topic in cluster.topics.values():
        facts.append(sum_topic(topic))
        await slices.pause()
    return facts


def sum_topic(topic: Topic) -> TopicFacts:
    """Depth, slope, in-flight and deferred include the channels'."""
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
        deferred_count=sum(each.deferred_count for each in counts),
        in_s=topic.rates.in_s if topic.rates else None,
        slope=sum(slopes) if slopes else None,
        oldest_s=oldest.oldest_s if oldest else None,
        oldest_is_minimum=oldest.oldest_is_minimum if oldest else False,
        channel_count=len(counts),
        consumer_count=sum(each.client_count for each in counts),
        idle_channels=sum(each.depth > 0 and each.client_count == 0 for each in counts),
        paused_parts=topic.paused_parts,
        paused_channels=sum(channel.paused_parts > 0 for channel in channels),
        is_inactive=not topic.parts,
    )


def paused_state(item: Topic | Channel) -> State | None:
    """On how many of its nodes it is paused; None if on none."""
    paused, parts = item.paused_parts, len(item.parts)
    if not paused:
        return None
    word = "paused" if paused == parts else f"paused on {paused} of {parts}"
    return State("warn", word)


def pause_actions(item: Topic | Channel) -> dict[str, bool]:
    """Which of the two buttons its page shows."""
    word = paused_word(item)
    return {"can-pause": word != "all", "can-unpause": word != "none"}


def paused_word(item: Topic | Channel) -> str:
    """For the menus of rows: a topic paused everywhere cannot be paused again."""
    paused = item.paused_parts
    return "none" if not paused else "all" if paused == len(item.parts) else "some"


def topic_states(facts: TopicFacts, problems: Sequence[Problem] = ()) -> list[State]:
    """The chips of a topic's row: its problems, the worst first, and what else is special."""
    states = problem_states(problems)
    if paused := paused_state(facts.topic):
        states.append(paused)
    if facts.paused_channels:
        count = facts.paused_channels
        word = "channel paused" if count == 1 else f"{count:,} channels paused"
        states.append(State("warn", word))
    if facts.is_inactive:
        states.append(State("off", "inactive", "only nsqlookupd knows it: no nsqd has it"))
    if facts.topic.is_ephemeral:
        states.append(State("info", "ephemeral"))
    return states


def channel_states(channel: Channel, problems: Sequence[Problem] = ()) -> list[State]:
    """The same of a channel."""
    states = problem_states(problems)
    if paused := paused_state(channel):
        states.append(paused)
    if channel.is_ephemeral:
        states.append(State("info", "ephemeral"))
    return states


def problem_states(problems: Sequence[Problem]) -> list[State]:
    """One for each rule that is broken, with the evidence; a muted problem is grey."""
    worst: dict[str, Problem] = {}
    for problem in problems:
        worst.setdefault(problem.rule, problem)
    return [
        State("off" if problem.muted_until else problem.severity.value, words(rule), problem.text)
        for rule, problem in worst.items()
    ]


def words(rule: str) -> str:
    """`no_consumers` is "no consumers"."""
    return rule.replace("_", " ")
