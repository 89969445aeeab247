"""What is asked beside the poll: how much at a time, and what is kept of the answers; no sockets."""

import asyncio

import msgspec

from nsqfast.nsqadmin.live.model import NodeState
from nsqfast.nsqadmin.live.probes import ASKED_PER_TICK, WANTED_MAX, Disk, Probes, read_disk
from nsqfast.nsqadmin.live.problems import Problems
from nsqfast.nsqadmin.options import parse
from nsqfast.nsqadmin.upstream.client import UpstreamError
from nsqfast.nsqadmin.upstream.messages import NsqdStats
from support.admin_cluster import make_channel, make_cluster, make_node, make_topic

METRICS = (
    b"# HELP nsqd_disk_free_bytes x\nnsqd_disk_free_bytes 2.5e+09\nnsqd_disk_size_bytes 1e+10\n"
)


class Upstream:
    """Answers at once; keeps what was asked."""

    def __init__(self, ready=0, metrics=METRICS):
        self.ready, self.metrics = ready, metrics
        self.stats_asked, self.metrics_asked = [], []

    async def read(self, address, path, kind):
        assert kind is NsqdStats
        self.stats_asked.append((address, path))
        if self.ready is None:
            raise UpstreamError("no answer in time")
        client = b'{"ready_count": %d}' % self.ready
        return msgspec.json.decode(
            b'{"topics":[{"topic_name":"t","channels":[{"channel_name":"c","clients":[%s,%s]}]}]}'
            % (client, client),
            type=NsqdStats,
        )

    async def get(self, address, path):
        assert path == "/metrics"
        self.metrics_asked.append(address)
        if isinstance(self.metrics, Exception):
            raise self.metrics
        return self.metrics


def node(key, **changes):
    return make_node(0, key=key, **changes)


async def ask(probes, *nodes):
    """And wait for the answers."""
    probes.ask(make_cluster(nodes=nodes))
    if probes._task is not None:
        await probes._task


async def test_few_channels_are_asked_for_at_a_tick_and_each_in_its_turn():
    upstream = Upstream(ready=2)
    probes = Probes(upstream)
    names = [("t", f"c{number}", "a:1") for number in range(10)]
    for tick in range(3):
        for one in names:
            probes.ready_count(*one)
        await ask(probes)
        assert len(upstream.stats_asked) == min(10, ASKED_PER_TICK * (tick + 1))
    assert [probes.ready_count(*one) for one in names] == [4] * 10
    assert len({path for _, path in upstream.stats_asked}) == 10
    probes.ask(make_cluster(nodes=[]))
    assert len(upstream.stats_asked) == 10  # they are known, for a while


async def test_what_is_not_suspicious_any_more_is_forgotten():
    probes = Probes(Upstream(ready=2))
    probes.ready_count("t", "c", "a:1")
    await ask(probes)
    assert probes.ready_count("t", "c", "a:1") == 4
    probes.ask(make_cluster(nodes=[]))
    probes.ask(make_cluster(nodes=[]))
    assert probes._ready == {}
    assert probes.ready_count("t", "c", "a:1") is None


async def test_a_node_that_does_not_answer_leaves_it_unknown_and_names_are_quoted():
    upstream = Upstream(ready=None)
    probes = Probes(upstream)
    names = ("t&x=1", "c#ephemeral", "a:1")
    probes.ready_count(*names)
    await ask(probes)
    assert probes.ready_count(*names) is None
    [(address, path)] = upstream.stats_asked
    assert address == "a:1"
    assert path.endswith("&topic=t%26x%3D1&channel=c%23ephemeral")


def test_what_waits_for_a_question_is_bounded():
    probes = Probes(None)
    for number in range(WANTED_MAX + 50):
        probes.ready_count("t", str(number), "a:1")
    probes.ask(make_cluster(nodes=[]))
    assert len(probes._ready) == WANTED_MAX


async def test_each_node_tells_of_its_disk_one_at_a_time():
    upstream = Upstream()
    probes = Probes(upstream)
    nodes = node("a:1"), node("b:1"), node("c:1", state=NodeState.DOWN)
    for expected in (["a:1"], ["a:1", "b:1"], ["a:1", "b:1"]):
        probes._disk_asked_s = 0.0
        await ask(probes, *nodes)
        assert sorted(upstream.metrics_asked) == expected
    assert probes.disk("a:1") == Disk(2.5e9, 1e10)
    assert probes.disk("c:1") is None
    probes.ask(make_cluster(nodes=[node("b:1")]))
    assert probes.disk("a:1") is None


async def test_a_node_without_figures_is_asked_again_only_after_it_began_anew():
    upstream = Upstream(metrics=UpstreamError("got response 404", 404))
    probes = Probes(upstream)
    for start_time, expected in ((1, 1), (1, 1), (2, 2), (2, 2)):
        probes._disk_asked_s = 0.0
        await ask(probes, node("a:1", start_time=start_time))
        assert len(upstream.metrics_asked) == expected


def test_what_says_nothing_of_a_disk():
    for free, size in (("NaN", "NaN"), ("1", "0"), ("-1", "9"), ("x", "9")):
        figures = f"\nnsqd_disk_free_bytes {free}\nnsqd_disk_size_bytes {size}\n"
        assert read_disk(figures.encode()) is None, figures
    for figures in (b"", b"404 page not found\n", b"\nnsqd_disk_free_bytes 1\n"):
        assert read_disk(figures) is None


def crowd(tick, count=5000):
    channels = [make_channel("t", f"c{number}", nodes=["a:1"], depth=1) for number in range(count)]
    topic = make_topic("t", channels, nodes=["a:1"])
    return make_cluster([topic], [node("a:1")], tick=tick, at=1e9 + tick)


async def test_a_large_cluster_is_judged_while_others_run_and_the_newest_tick_is_next():
    problems = Problems(parse(["--problem-no-consumers=0s"]))
    problems.take(crowd(1))
    await problems.stop()  # in the middle
    assert problems.tick == 0
    problems = Problems(parse(["--problem-no-consumers=0s"]))
    problems.take(crowd(1))
    assert problems.tick == 0
    for tick in (2, 3):
        problems.take(crowd(tick))
    turns, ticks = 0, set()
    async with asyncio.timeout(50):
        while problems.tick < 3:
            await asyncio.sleep(0)
            turns += 1
            ticks.add(problems.tick)
    assert turns > 3
    assert ticks == {0, 1, 3}
    assert problems.total == 5000
    await problems.stop()
