"""What several pages show of nodes, topics and channels: their chips, and the table of channels."""

from collections.abc import Sequence
from typing import Any

from nsqfast.nsqadmin.cluster.answers import Client, DrainFigures
from nsqfast.nsqadmin.cluster.model import Channel, Cluster, Node, NodePart, NodeState, Topic
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.problems.report import Problem
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.request import GROWS_S_MIN
from nsqfast.nsqadmin.web.tables import Column, TableSpec, chips, link, number
from nsqfast.nsqadmin.web.texts import State
from nsqfast.nsqadmin.web.view import PageNotFoundError, find_similar_names

INACTIVE = State("off", "inactive", "only nsqlookupd knows it: no nsqd has it")
EPHEMERAL = State("info", "ephemeral")
TOMBSTONED = State("off", "tombstoned", "nsqlookupd hides the topic on this node")


async def find_topic(context: Context, cluster: Cluster, topic: str) -> Topic:
    """The topic of that name; PageNotFoundError has similar names."""
    if topic in cluster.topics:
        return cluster.topics[topic]
    near = await find_similar_names(topic, cluster.topics)
    raise PageNotFoundError("topic", topic, [(each, context.urls.topic(each)) for each in near])


async def find_channel(
    context: Context, cluster: Cluster, topic: str, channel: str
) -> tuple[Topic, Channel]:
    """The channel and its topic; PageNotFoundError has similar names, or the topic."""
    found = await find_topic(context, cluster, topic)
    if channel in found.channels:
        return found, found.channels[channel]
    urls = context.urls
    near = await find_similar_names(channel, found.channels)
    links = [(f"{topic}/{each}", urls.channel(topic, each)) for each in near]
    raise PageNotFoundError("channel", f"{topic}/{channel}", links or [(topic, urls.topic(topic))])


def in_s(item: Topic | Channel | Node | NodePart) -> float | None:
    return item.rates.in_s if item.rates else None


def out_s(item: Channel | NodePart) -> float | None:
    return item.rates.out_s if item.rates else None


def place_of(one: Node | Client) -> str:
    """`REGION/ZONE`, as far as they are known."""
    return "/".join(part for part in (one.topology_region, one.topology_zone) if part)


def node_state(node: Node, at: float) -> State:
    """Up, draining, stale for this long, or down; NOK if nsqd reports it itself."""
    if node.is_planned(at):
        return State("off", "stopped as planned", f"after a drain, {texts.clock(node.since)}")
    if node.state is NodeState.DOWN:
        return State("crit", "down", node.error)
    if node.state is NodeState.STALE:
        late_s = at - node.answered_at if node.answered_at else None
        return State("warn", f"stale {texts.duration(late_s)}", node.error)
    if node.health and node.health != "OK":
        return State("crit", "not well", node.health)
    if node.drain is not None:
        return drain_state(node.drain)
    return State("ok", "up")


def drain_state(drain: DrainFigures) -> State:
    """`draining: 1,200 left, until 14:30:00`"""
    until = (", until ", texts.clock(drain.deadline)) if drain.deadline is not None else ()
    since = f"since {texts.clock(drain.since)}"
    held = f"; nobody gets {texts.count(drain.held)} of them" if drain.held else ""
    word = texts.Timed(f"draining: {texts.count(drain.messages)} left", *until)
    return State("warn" if drain.held else "info", word, since + held)


def paused_state(item: Topic | Channel) -> State | None:
    """On how many of its nodes it is paused; None if on none."""
    paused, parts = item.parts.paused_count, len(item.parts)
    if not paused:
        return None
    word = "paused" if paused == parts else f"paused on {paused} of {parts}"
    return State("warn", word)


def paused_word(item: Topic | Channel) -> str:
    """For the menus of rows: a topic paused everywhere cannot be paused again."""
    paused = item.parts.paused_count
    return "none" if not paused else "all" if paused == len(item.parts) else "some"


def channel_states(channel: Channel, problems: Sequence[Problem] = ()) -> list[State]:
    """The same of a channel."""
    states = problem_states(problems)
    if paused := paused_state(channel):
        states.append(paused)
    return [*states, EPHEMERAL] if channel.is_ephemeral else states


def problem_states(problems: Sequence[Problem]) -> list[State]:
    """One for each rule that is broken, with the evidence; a muted problem is grey."""
    worst: dict[str, Problem] = {}
    for problem in problems:
        worst.setdefault(problem.rule, problem)
    return [
        State(
            "off" if problem.muted_until else problem.severity.value,
            rule.replace("_", " "),
            problem.text,
        )
        for rule, problem in worst.items()
    ]


# Of a Channel, or of TopicFacts.
OLDEST: Column[Any] = number(
    "oldest",
    "Oldest",
    lambda each: each.oldest_s,
    3,
    texts.duration,
    title=lambda each: "at least" if each.oldest_is_minimum else "",
    hint="Estimated age of the message that waits longest",
)
CHANNELS: TableSpec[Channel] = TableSpec(
    name="channels",
    caption="Channels",
    columns=(
        link(
            "name",
            "Channel",
            lambda channel: channel.name,
            lambda urls, channel: urls.channel(channel.topic, channel.name),
        ),
        chips("state", "State", channel_states),
        number("depth", "Depth", lambda channel: channel.counts.depth),
        number("in_flight", "In flight", lambda channel: channel.counts.in_flight_count, 3),
        number("deferred", "Deferred", lambda channel: channel.counts.deferred_count, 4),
        number("in", "Published", in_s, 3, texts.rate),
        number("out", "Finished", out_s, 2, texts.rate),
        number(
            "growth",
            "Lag grows by",
            lambda channel: channel.depth_slope,
            4,
            texts.slope,
            hint="Of the depth, over the last five minutes",
        ),
        number(
            "requeue",
            "Requeue",
            lambda channel: channel.rates.requeue_s if channel.rates else None,
            4,
            texts.rate,
        ),
        number("timed_out", "Timed out", lambda channel: channel.counts.timeout_count, 4),
        OLDEST,
        number("consumers", "Consumers", lambda channel: channel.counts.client_count, 2),
        Column(
            "trend",
            "Trend",
            lambda channel: channel.depth_slope,
            kind="spark",
            priority=4,
            help="Depth over the last hour",
            spark=lambda request, channel: request.context.history.sparkline(
                ("channel", channel.topic, channel.name)
            ),
        ),
    ),
    key=lambda channel: channel.name,
    data=lambda channel: {
        "topic": channel.topic,
        "channel": channel.name,
        "paused": paused_word(channel),
        "inactive": "" if channel.parts else "yes",
    },
    searchable=lambda channel: channel.name,
    flags={
        "is:paused": lambda channel: channel.parts.paused_count > 0,
        "is:ephemeral": lambda channel: channel.is_ephemeral,
        "is:growing": lambda channel: (channel.depth_slope or 0.0) > GROWS_S_MIN,
        "no:consumers": lambda channel: channel.counts.client_count == 0,
    },
    numbers=("depth", "consumers", "in_flight", "deferred", "oldest", "rate=out"),
    can_select=True,
    has_actions=True,
    empty="No channel: messages wait in the topic until there is one.",
    search_label="Search channels",
)
