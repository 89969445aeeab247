"""The rows of all nodes, put together in arrays, against the same sums over lists; random clusters, seed printed."""

import asyncio
import random

import pytest
from nsqfast._ext.dev.probes import fix_parts

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.aggregation import Arrangement, aggregate
from nsqfast.nsqadmin.cluster.members import Identity, NodeWatch
from nsqfast.nsqadmin.cluster.model import (
    Counts,
    NodeState,
    Rates,
    count_paused,
    node_keys,
    part_at,
)
from nsqfast.nsqadmin.cluster.samples import (
    ChannelFigures,
    Layouts,
    TopicFigures,
    make_sample,
    read_figures,
)
from nsqfast.nsqadmin.problems.fresh_numbers import Moment

NODES, TOPICS, CHANNELS, TICKS = 7, 9, 4, 6
COUNTS = [name for name in Counts.__struct_fields__ if name != "message_count"]


class Cluster:
    """Nodes that say something else at each tick; `said` is what, by (topic, channel) and node."""

    def __init__(self, chance):
        self.chance = chance
        self.layouts = Layouts()
        self.arrangement = Arrangement()
        self.nodes = [
            NodeWatch(Identity(f"host-{n}", f"host-{n}", 0, 1), None, None, self.layouts, n, 0.0)
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
        return await aggregate(self.arrangement, self.tick, 1.0 * self.tick, self.nodes, [])


def naive_share(moment, channel):
    ignored = moment.ignored(channel.topic)
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
    moment = Moment(cluster)
    for topic in cluster.topics.values():
        holders = [key for key, topics in said.items() if topic.name in topics]
        assert list(node_keys(topic.parts)) == [part.node for part in topic.parts] == holders
        figures = {key: said[key][topic.name] for key in holders}
        assert topic.counts.depth == sum(each.depth for each in figures.values())
        names = {channel.channel_name for each in figures.values() for channel in each.channels}
        assert list(topic.channels) == sorted(names)
        for channel in topic.channels.values():
            check_channel(channel, figures, moment)


def check_channel(channel, figures, moment):
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
        part = channel.parts[index]
        assert part == parts[index] == part_at(channel.parts, key)
        for name in Counts.__struct_fields__:
            assert getattr(part.counts, name) == getattr(one, name)
        assert part.paused == one.paused
    assert part_at(channel.parts, "nobody:1") is None
    assert channel.parts[1:] == parts[1:]
    for name in Counts.__struct_fields__:
        assert getattr(channel.counts, name) == sum(getattr(one, name) for one in by_node.values())
    assert count_paused(channel.parts) == count_paused(parts)
    known = [part.rates for part in parts if part.rates is not None]
    assert (channel.rates is not None) == bool(known)
    if known:
        assert channel.rates.out_s == pytest.approx(sum(rates.out_s for rates in known))
    share, serving = naive_share(moment, channel)
    ignored = moment.ignored(channel.topic)
    if ignored or channel.paused_parts:
        assert moment.share(channel) == share
    assert moment.serving_nodes(channel) == serving


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


async def test_memory_is_used_again_when_nobody_holds_the_tick():
    cluster = Cluster(random.Random(1))
    await cluster.say()
    seen = set()
    for _ in range(TICKS):
        tick = await aggregate(cluster.arrangement, 1, 1.0, cluster.nodes, [])
        seen.add(next(iter(tick.topics.values())).parts.rows.values.ctypes.data)
        del tick
    assert len(seen) == 1


async def test_everybody_else_has_turns_while_a_tick_is_summed():
    cluster = Cluster(random.Random(2))
    await cluster.say()
    turns = 0
    fix_parts(1)
    try:
        task = asyncio.ensure_future(aggregate(cluster.arrangement, 1, 1.0, cluster.nodes, []))
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
    finally:
        fix_parts(0)
    assert turns > 5 * NODES
