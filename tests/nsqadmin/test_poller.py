"""What the poller makes of living, slow, dead and wrong nodes."""

import asyncio
import json
import time

import pytest

from nsqfast.nsqadmin.cluster.model import NodeState
from nsqfast.nsqadmin.cluster.poller import ANSWER_S
from nsqfast.nsqadmin.web.view import banner_lines
from support.admin import LiveCluster, text_of
from support.fake_stats import FakeStats, stats, topic
from support.polling import Polling
from support.server import start_nsqd, start_nsqlookupd
from support.simulated_cluster import SimulatedCluster
from support.waiting import wait_until
from support.web import post

UP, STALE, DOWN = NodeState.UP, NodeState.STALE, NodeState.DOWN


def states(cluster):
    return sorted(node.state.value for node in cluster.nodes.values())


def key_of(server):
    return text_of(server.http)


@pytest.mark.slow
@pytest.mark.go
def test_nodes_topics_and_channels_of_a_living_cluster(tmp_path):
    async def watch(live):
        for number, nsqd in enumerate(live.nsqds):
            post(nsqd.http, "/topic/create?topic=orders")
            post(nsqd.http, "/channel/create?topic=orders&channel=billing")
            for _ in range(number + 1):
                post(nsqd.http, "/pub?topic=orders", b"body")
        post(live.nsqds[0].http, "/channel/pause?topic=orders&channel=billing")
        post(live.lookupds[0].http, "/topic/create?topic=quiet")
        post(live.lookupds[0].http, "/channel/create?topic=quiet&channel=c%23ephemeral")
        live.wait_for_topic("orders", 3, 1)
        async with Polling(
            nsqlookupd_http_addresses=[key_of(one) for one in live.lookupds]
        ) as polling:
            return await polling.until(
                lambda c: (
                    c.topics["quiet"].channels
                    and (found := c.channel("orders", "billing"))
                    and found.counts.depth == 6
                ),
                "three nodes",
            )

    with LiveCluster(tmp_path) as live:
        cluster = asyncio.run(watch(live))
        keys = {key_of(one) for one in live.nsqds}
        lookupds = [key_of(one) for one in live.lookupds]
    assert set(cluster.nodes) == keys
    assert states(cluster) == ["up"] * 3
    assert list(cluster.topics) == ["orders", "quiet"]
    assert cluster.topics["orders"].message_bytes == 6 * 4
    billing = cluster.channel("orders", "billing")
    assert (billing.counts.message_count, billing.parts.paused_count) == (6, 1)
    assert {part.node for part in billing.parts} == keys
    quiet = cluster.topics["quiet"]
    assert (list(quiet.parts), list(quiet.channels)) == ([], ["c#ephemeral"])
    assert quiet.channels["c#ephemeral"].is_ephemeral
    totals = cluster.totals
    assert (totals.depth, totals.nodes_up, totals.nodes_known) == (6, 3, 3)
    assert list(cluster.lookupds) == lookupds
    assert all(one.is_up and one.nodes == keys and one.version for one in cluster.lookupds.values())
    for node in cluster.nodes.values():
        assert node.lookupds == tuple(lookupds)
        assert [a.split("/")[0] for a in node.remote_addresses] == lookupds
        assert node.memory_bytes
        assert node.version == "1.3.0"
        assert not node.is_out_of_date
    assert banner_lines(cluster) == []


@pytest.mark.slow
def test_a_node_that_dies_is_named_and_stays_until_it_is_back(tmp_path):
    async def watch(live):
        addresses = [key_of(one) for one in live.lookupds]
        async with Polling(nsqlookupd_http_addresses=addresses) as polling:
            await polling.until(lambda c: states(c) == ["up"] * 2, "both up")
            victim = live.nsqds[1]
            key = key_of(victim)
            killed_at = time.time()
            victim.kill()
            dead = await polling.until(lambda c: c.nodes[key].state is DOWN, "dead")
            node = dead.nodes[key]
            assert node.error
            assert any(key in line and node.error in line for line in banner_lines(dead))
            assert killed_at - 1 < node.since <= time.time()
            assert (dead.totals.nodes_up, dead.totals.nodes_known) == (1, 2)
            # Its nsqlookupd forgot it at once, we did not.
            assert (node.lookupds, node.rates) == ((), None)
            seen = [c.nodes[key].state for c in polling.ticks if key in c.nodes]
            assert [s for s in seen if s is not UP][:3] == [STALE, STALE, DOWN]
            told = [f"--lookupd-tcp-address={text_of(one.tcp)}" for one in live.lookupds]
            where = [f"--http-address={key}", f"--tcp-address={text_of(victim.tcp)}"]
            # nsqd says when it started in whole seconds: the next one is another.
            wait_until(lambda: time.time() >= node.start_time + 1, "another second")
            with start_nsqd("nsqfast", live.folder / "nsqd-1", *told, *where):
                back = await polling.until(lambda c: states(c) == ["up"] * 2, "back")
                assert back.nodes[key].error == ""
                assert banner_lines(back) == []
                texts = [mark.text for mark in polling.history.series(("node", key), 900).marks]
                assert len([t for t in texts if "restarted" in t]) == 1

    with LiveCluster(tmp_path, ("nsqfast",) * 2, ("nsqfast",)) as live:
        asyncio.run(watch(live))


@pytest.mark.slow
def test_a_frozen_node_goes_stale_and_holds_nobody_up(tmp_path):
    async def watch(live):
        post(live.nsqds[0].http, "/pub?topic=t", b"x")
        post(live.nsqds[1].http, "/pub?topic=t", b"x")
        addresses = [key_of(one) for one in live.nsqds]
        async with Polling(nsqd_http_addresses=addresses) as polling:
            await polling.until(lambda c: states(c) == ["up"] * 2, "both up")
            with live.nsqds[1].frozen():
                stale = await polling.until(lambda c: states(c) == ["stale", "up"], "stale")
                assert stale.topics["t"].counts.depth == 2
                node = stale.nodes[addresses[1]]
                assert "no answer" in node.error
                assert node.answered_at < stale.at
                down = await polling.until(lambda c: states(c) == ["down", "up"], "down")
                assert polling.poller.took_s < ANSWER_S  # nobody waits for it any more
                assert down.totals.nodes_up == 1
            back = await polling.until(lambda c: states(c) == ["up"] * 2, "thawed")
            assert back.topics["t"].counts.depth == 2

    with LiveCluster(tmp_path, ("nsqfast",) * 2, ("nsqfast",)) as live:
        asyncio.run(watch(live))


@pytest.mark.slow
def test_without_nsqlookupd_the_last_list_of_nodes_goes_on_being_asked(tmp_path):
    async def watch(live):
        addresses = [key_of(one) for one in live.lookupds]
        async with Polling(nsqlookupd_http_addresses=addresses) as polling:
            await polling.until(lambda c: states(c) == ["up"] * 2, "both up")
            live.lookupds[0].kill()
            one = await polling.until(
                lambda c: not c.lookupds[addresses[0]].is_up, "the first is gone"
            )
            assert states(one) == ["up"] * 2
            live.lookupds[1].kill()
            none = await polling.until(
                lambda c: not any(v.is_up for v in c.lookupds.values()), "both are gone"
            )
            post(live.nsqds[0].http, "/pub?topic=later", b"x")
            later = await polling.until(lambda c: "later" in c.topics, "nsqd are asked on")
            assert states(later) == ["up"] * 2
            assert none.lookupds
            assert len(banner_lines(later)) == 3
            assert all(v.answered_at and v.error for v in later.lookupds.values())

    with LiveCluster(tmp_path, ("nsqfast",) * 2, ("nsqfast",) * 2) as live:
        asyncio.run(watch(live))


@pytest.mark.slow
def test_nsqlookupd_that_disagree_are_told_apart(tmp_path):
    async def watch(first, second, nsqd):
        addresses = [key_of(first), key_of(second)]
        async with Polling(nsqlookupd_http_addresses=addresses) as polling:
            cluster = await polling.until(lambda c: states(c) == ["up"], "up")
            assert cluster.nodes[key_of(nsqd)].lookupds == (addresses[0],)
            assert cluster.lookupds[addresses[1]].nodes == frozenset()
            post(nsqd.http, "/topic/create?topic=t")
            await polling.until(lambda c: "t" in c.topics, "topic")
            post(first.http, f"/topic/tombstone?topic=t&node={key_of(nsqd)}")
            hidden = await polling.until(
                lambda c: c.nodes[key_of(nsqd)].tombstones == {"t"}, "tombstone"
            )
            assert hidden.topics["t"].parts
            # The settings may change while we run.
            polling.options.nsqlookupd_http_addresses = [addresses[1]]
            other = await polling.until(lambda c: list(c.lookupds) == [addresses[1]], "changed")
            assert other.nodes == {}

    with (
        start_nsqlookupd("nsqfast") as first,
        start_nsqlookupd("nsqfast") as second,
        start_nsqd("nsqfast", tmp_path, f"--lookupd-tcp-address={text_of(first.tcp)}") as nsqd,
    ):
        asyncio.run(watch(first, second, nsqd))


WRONG = {
    "text": b"hello",
    "empty": b"",
    "a list": b"[]",
    "an object": b"{}",
    "half": json.dumps(stats(topic("t"))).encode()[:-5],
    "deep": b'{"version":"1.3.0","topics":' + b"[" * 100_000,
    "text for a number": json.dumps(stats({**topic("t"), "depth": "many"})).encode(),
    "beyond 64 bits": json.dumps(stats(topic("t", depth=1 << 70))).encode(),
    "no utf-8": b'{"version":"\xff"}',
    "no name": b'{"version":"1.3.0","topics":[{"depth":1}]}',
    "large garbage": b'{"version":"1.3.0","topics":[' + b'{"topic_name":"t"} ' * 200_000,
    "an error": None,
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_answer_is_an_error_of_its_node_alone(answer, caplog):
    async def watch(good, bad):
        async with Polling(nsqd_http_addresses=[good.address, bad.address]) as polling:
            cluster = await polling.until(lambda c: len(c.nodes) == 2 and c.tick > 1, "asked")
            assert cluster.nodes[good.address].state is UP
            assert cluster.nodes[bad.address].state is DOWN
            assert cluster.nodes[bad.address].error
            assert len(cluster.nodes[bad.address].error) < 3000
            assert list(cluster.topics) == ["t"]
            bad.answer = lambda *_: stats(topic("mended"))
            mended = await polling.until(lambda c: states(c) == ["up"] * 2, "mended")
            assert "mended" in mended.topics

    with (
        FakeStats(lambda *_: stats(topic("t", depth=3))) as good,
        FakeStats(lambda *_: answer) as bad,
    ):
        asyncio.run(watch(good, bad))
    assert [r for r in caplog.records if r.exc_info] == []


@pytest.mark.slow
def test_the_interval_follows_the_cost_and_the_viewers():
    async def watch(cluster):
        addresses = cluster.lookupds
        async with Polling(nsqlookupd_http_addresses=addresses, poll_interval_ns=0) as polling:
            poller = polling.poller
            first = await polling.until(lambda c: len(c.topics) == 50, "all topics")
            assert first.totals.nodes_up == 10
            assert poller.interval_s >= max(2.0, 12 * poller.cpu_s)
            assert poller.interval_s <= max(2.0, 48 * poller.cpu_s)
            poller._seen_s -= 100
            assert poller._interval_s() == 10.0
            ticks = len(polling.ticks)
            poller.seen()
            await poller.next_tick()
            assert len(polling.ticks) == ticks + 1
            assert poller._interval_s() < 10.0

    with SimulatedCluster(nodes=10, topics=50) as cluster:
        asyncio.run(watch(cluster))


def test_another_version_is_read_as_far_as_it_goes_and_a_wrong_nsqlookupd_is_named():
    old = {"version": "0.3.8", "health": "NOK - disk", "topics": None}
    new = stats({**topic("t"), "new_thing": {"a": [1]}}) | {"version": "2.0.0", "more": []}

    async def watch(first, second):
        async with Polling(nsqd_http_addresses=[first.address, second.address]) as polling:
            cluster = await polling.until(lambda c: states(c) == ["up"] * 2, "up")
            node = cluster.nodes[first.address]
            assert (node.version, node.health, node.is_out_of_date) == ("0.3.8", "NOK - disk", True)
            assert not cluster.nodes[second.address].is_out_of_date
        first.answer = lambda *_: b"hello"
        async with Polling(nsqlookupd_http_addresses=[first.address]) as polling:
            cluster = await polling.until(lambda c: c.tick > 1, "asked")
            assert cluster.lookupds[first.address].error
            assert (cluster.nodes, len(banner_lines(cluster))) == ({}, 2)

    with FakeStats(lambda *_: old) as first, FakeStats(lambda *_: new) as second:
        asyncio.run(watch(first, second))
