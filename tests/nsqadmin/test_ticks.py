"""The rows of all nodes, put together in arrays, against the same sums over lists; random clusters, seed printed."""

import asyncio
import math
import random
from dataclasses import fields

import pytest
from msgspec.structs import astuple
from nsqfast._ext.dev.probes import fix_parts

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.answers import ChannelFigures, NodeIdentity, TopicFigures
from nsqfast.nsqadmin.cluster.history import History
from nsqfast.nsqadmin.cluster.members import NodeWatch
from nsqfast.nsqadmin.cluster.model import (
    Counts,
    NodeState,
    Rates,
)
from nsqfast.nsqadmin.cluster.poller import free_topics
from nsqfast.nsqadmin.cluster.samples import (
    Layouts,
    make_sample,
    read_figures,
)
from nsqfast.nsqadmin.cluster.tick import Arrangement, make_tick
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.problems.up_node_numbers import UpNodeNumbers

NODES, TOPICS, CHANNELS, TICKS = 7, 9, 4, 6
COUNTS = [name for name in Counts.__struct_fields__ if name != "message_count"]


class Cluster:
    """Nodes that say something else at each tick; `said` is what, by (topic, channel) and node."""

    def __init__(self, chance):
        self.chance = chance
        self.layouts = Layouts()
        self.arrangement, self.history = Arrangement(), History(Options())
        self.nodes = [
            NodeWatch(
                NodeIdentity(f"host-{n}", f"host-{n}", 0, 1), None, None, self.layouts, n, 0.0
            )
            for n in range(NODES)
        ]
        self.said = {}
        self.tick = 0

    async def say(self):
        """New numbers, and now and then new names."""
        chance = self.chance
        for node in self.nodes:
            topics = []
            for topic in range(TOPICS):
                if chance.random() < 0.2 if not self.tick else chance.random() < 0.03:
                    continue
                channels = tuple(
                    ChannelFigures(
                        channel_name=f"c{channel}",
                        message_count=100 * self.tick + chance.randrange(100),
                        paused=chance.random() < 0.2,
                        **{name: chance.choice([0, 0, chance.randrange(50)]) for name in COUNTS},
                    )
                    for channel in range(CHANNELS)
                    if chance.random() < 0.95
                )
                depth = chance.randrange(5)
                topics.append(TopicFigures(topic_name=f"t{topic}", channels=channels, depth=depth))
            elapsed_s = 2.0 if self.tick and chance.random() < 0.9 else 0.0
            node.sample = await make_sample(
                read_figures(topics), node.sample, self.layouts, elapsed_s, {}, Slices()
            )
            node.question.state = chance.choice([NodeState.UP] * 4 + [NodeState.STALE])
            node.listing.tombstones = {f"t{chance.randrange(TOPICS)}"}
            self.said[node.key] = {each.topic_name: each for each in topics}
        self.tick += 1

    async def take(self):
        """The next tick."""
        await self.say()
        return await self.make()

    async def make(self):
        return await make_tick(
            self.arrangement, self.history, self.tick, 20.0 * self.tick, self.nodes, []
        )


def naive_share(fresh, channel):
    ignored = fresh.ignored(channel.topic)
    fresh = [part for part in channel.parts if part.node not in ignored]
    parts = [part for part in fresh if not part.paused]
    rates = [part.rates for part in parts]
    total = None
    if parts and None not in rates:
        columns = zip(*((r.in_s, r.out_s, r.requeue_s, r.timeout_s) for r in rates), strict=True)
        total = Rates(*map(sum, columns))
    return (
        len(parts),
        [part for part in fresh if part.paused],
        sum(part.counts.depth for part in parts),
        sum(part.counts.in_flight_count for part in parts),
        sum(part.counts.client_count for part in parts),
        total,
    ), [part.node for part in parts if part.counts.depth and part.counts.client_count]


def check(cluster, said):
    assert list(cluster.topics) == sorted({name for topics in said.values() for name in topics})
    fresh = UpNodeNumbers(cluster)
    for topic in cluster.topics.values():
        holders = [key for key, topics in said.items() if topic.name in topics]
        assert list(topic.parts.node_keys()) == [part.node for part in topic.parts] == holders
        figures = {key: said[key][topic.name] for key in holders}
        assert topic.counts.depth == sum(each.depth for each in figures.values())
        names = {channel.channel_name for each in figures.values() for channel in each.channels}
        assert list(topic.channels) == sorted(names)
        for channel in topic.channels.values():
            check_channel(channel, figures, fresh)


def check_channel(channel, figures, fresh):
    by_node = {
        key: one
        for key, each in figures.items()
        for one in each.channels
        if one.channel_name == channel.name
    }
    parts = list(channel.parts)
    assert [part.node for part in parts] == list(by_node)
    assert len(channel.parts) == len(by_node)
    for index, (key, one) in enumerate(by_node.items()):
        part = parts[index]
        assert part == channel.parts.at(key)
        for name in Counts.__struct_fields__:
            assert getattr(part.counts, name) == getattr(one, name)
        assert part.paused == one.paused
    assert channel.parts.at("nobody:1") is None
    for name in Counts.__struct_fields__:
        assert getattr(channel.counts, name) == sum(getattr(one, name) for one in by_node.values())
    assert channel.parts.paused_count == sum(part.paused for part in parts)
    known = [part.rates for part in parts if part.rates is not None]
    assert (channel.rates is not None) == bool(known)
    if known:
        assert channel.rates.out_s == pytest.approx(sum(rates.out_s for rates in known))
    share, serving = naive_share(fresh, channel)
    ignored = fresh.ignored(channel.topic)
    if ignored or channel.parts.paused_count:
        assert fresh.share(channel) == share
    assert fresh.serving_nodes(channel) == serving


@pytest.mark.parametrize("seed", [random.randrange(1 << 30) for _ in range(3)])
async def test_sums_parts_and_shares_are_those_of_lists(seed):
    print("seed", seed)

    cluster = Cluster(random.Random(seed))
    for _ in range(TICKS):
        check(await cluster.take(), cluster.said)


async def test_a_tick_that_somebody_holds_does_not_change():
    cluster = Cluster(random.Random(4711))
    held = [(await cluster.take(), dict(cluster.said)) for _ in range(TICKS)]
    for tick, said in held:
        check(tick, said)


def check_past(history, channel, fresh):
    """History took what the tick shows: the last point, nothing where no node answers."""
    series = history.series(("channel", channel.topic, channel.name), 900)
    last = {name: column[-1].item() for name, column in series.columns.items()}
    if all(part.node in fresh.silent for part in channel.parts):
        assert all(math.isnan(value) for value in last.values())
        return
    counts, rates = channel.counts, channel.rates
    depth = last["memory_depth"], last["backend_depth"], last["in_flight"], last["deferred"]
    assert depth == (
        counts.depth - counts.backend_depth,
        counts.backend_depth,
        counts.in_flight_count,
        counts.deferred_count,
    )
    flow = [last[f"{name}_s"] for name in ("in", "out", "requeue", "timeout")]
    known = astuple(rates) if rates else [math.nan] * 4
    assert flow == pytest.approx(list(known), nan_ok=True)


async def test_history_takes_what_the_tick_shows():
    cluster = Cluster(random.Random(7))
    for _ in range(TICKS):
        tick = await cluster.take()
        fresh = UpNodeNumbers(tick)
        for topic in tick.topics.values():
            for channel in topic.channels.values():
                check_past(cluster.history, channel, fresh)


async def test_a_tick_is_frozen():
    """Everybody has the same one, so nobody writes into it: neither names, nor numbers, nor arrays."""
    tick = await Cluster(random.Random(3)).take()
    topic = next(iter(tick.topics.values()))
    channel = next(iter(topic.channels.values()))
    node = next(iter(tick.nodes.values()))
    rows = channel.parts.rows
    whole = [tick, tick.totals, node, node.counts, topic, topic.counts, channel, channel.counts]
    for one in [*whole, channel.parts, *channel.parts, rows]:
        for name in getattr(one, "__struct_fields__", None) or [each.name for each in fields(one)]:
            with pytest.raises(AttributeError):
                setattr(one, name, None)
    for array in (rows.values, rows.rates, rows.order, rows.nodes):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    for mapping in (tick.topics, tick.nodes, tick.lookupds):
        with pytest.raises(TypeError):
            mapping["other"] = None


async def count_turns(work):
    """How many turns everybody else has meanwhile, if a slice ends at each of its pauses; and the result."""
    turns = 0
    fix_parts(1)
    try:
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
    finally:
        fix_parts(0)
    return turns, task.result()


async def test_everybody_else_has_turns_while_a_tick_is_summed():
    cluster = Cluster(random.Random(2))
    await cluster.say()
    turns, _ = await count_turns(cluster.make())
    assert turns > 5 * NODES


async def test_everybody_else_has_turns_while_a_topic_of_many_channels_is_made_and_freed():
    cluster, count = Cluster(random.Random(2)), 1000
    cluster.nodes = cluster.nodes[:1]
    channels = tuple(ChannelFigures(channel_name=f"c{number:03}") for number in range(count))
    figures = read_figures([TopicFigures(topic_name="t", channels=channels)])
    watch = cluster.nodes[0]
    watch.sample = await make_sample(figures, watch.sample, cluster.layouts, 0.0, {}, Slices())
    turns, tick = await count_turns(cluster.make())
    assert turns > count
    topics = list(tick.topics.values())
    assert [len(topic.channels) for topic in topics] == [count]
    turns, _ = await count_turns(free_topics(topics))
    assert turns > count
